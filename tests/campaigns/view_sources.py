"""Sources of each kind that changes reach in its own way, and the rows that each holds."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from view_oracle import Row

import windrow as wr
from windrow import Shard

SOURCE_COLUMNS = "id INT, kind INT, ts BIGINT"
SCHEMA = pa.schema([("id", pa.int32()), ("kind", pa.int32()), ("ts", pa.int64())])


def table(rows: list[Row]) -> pa.Table:
    columns = [[row[i] for row in rows] for i in range(len(SCHEMA))]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


class ChangingSource(ABC):
    """A source in a folder. It holds rows from the beginning."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self._pick, self._count = folder, random.Random(f"{seed} {folder.name}"), 0
        self.begin()

    def some(self) -> list[Row]:
        rows = []
        for _ in range(self._pick.randrange(1, 6)):
            self._count += 1
            rows.append((self._count, self._pick.randrange(8), self._pick.randrange(100)))
        return [*rows, *rows[: self._pick.randrange(2)]]  # now and then, a row that is there twice

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def change(self) -> None: ...

    @abstractmethod
    def rows(self) -> list[Row]: ...

    @abstractmethod
    def define(self, project: wr.Project, name: str) -> None: ...


class Files(ChangingSource):
    """Parquet files that come, are rewritten and go."""

    def begin(self) -> None:
        self.folder.mkdir(parents=True)
        self._files: dict[str, list[Row]] = {}
        self._write("first.parquet")

    def _write(self, name: str) -> None:
        self._files[name] = self.some()
        pq.write_table(table(self._files[name]), self.folder / name)

    def change(self) -> None:
        how = self._pick.choice(("add", "add", "rewrite", "remove"))
        if how == "add" or len(self._files) == 1:
            self._write(f"{self._count}.parquet")
            return
        name = self._pick.choice(sorted(self._files))
        if how == "rewrite":
            self._write(name)
        else:
            del self._files[name]
            (self.folder / name).unlink()

    def rows(self) -> list[Row]:
        return [row for rows in self._files.values() for row in rows]

    def define(self, project: wr.Project, name: str) -> None:
        project.sql(f"CREATE TABLE {name} USING parquet LOCATION '{self.folder}'")


class ChangeData(ChangingSource):
    """A Delta table whose change data are followed."""

    def begin(self) -> None:
        feeds = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(self.folder), table(self.some()), configuration=feeds)

    def change(self) -> None:
        there, which = DeltaTable(str(self.folder)), f"id % 3 = {self._pick.randrange(3)}"
        match self._pick.choice(("append", "append", "update", "delete", "optimize")):
            case "append":
                write_deltalake(str(self.folder), table(self.some()), mode="append")
            case "update":
                there.update({"kind": str(self._pick.randrange(8))}, predicate=which)
            case "delete":
                there.delete(which)
            case "optimize":
                there.optimize.compact()

    def rows(self) -> list[Row]:
        held = DeltaTable(str(self.folder)).to_pyarrow_table().to_pylist()
        return [tuple(row[name] for name in SCHEMA.names) for row in held]

    def define(self, project: wr.Project, name: str) -> None:
        project.sql(f"CREATE TABLE {name} USING delta LOCATION '{self.folder}'")


class Snapshots(ChangingSource):
    """Snapshots of days, of which the newest counts."""

    def begin(self) -> None:
        self._days: dict[str, list[Row]] = {}
        self._write(0)

    def _write(self, number: int) -> None:
        day = str(date(2024, 5, 1) + timedelta(days=number))
        before = self.rows() if self._days else []
        kept = self._pick.sample(before, len(before) // 2)
        folder, work = self.folder / f"ds={day}", self.folder.with_name("at-work")
        work.mkdir(parents=True)
        pq.write_table(table([*kept, *self.some()]), work / "x.parquet")
        (work / "_SUCCESS").touch()
        self._days[day] = [tuple(r.values()) for r in pq.read_table(work / "x.parquet").to_pylist()]
        shutil.rmtree(folder, ignore_errors=True)
        self.folder.mkdir(exist_ok=True)
        work.rename(folder)

    def change(self) -> None:
        how = self._pick.choice(("new", "new", "again", "remove"))
        if how == "remove" and len(self._days) > 1:
            day = max(self._days)
            del self._days[day]
            shutil.rmtree(self.folder / f"ds={day}")
        else:
            self._write(len(self._days) - (how == "again"))

    def rows(self) -> list[Row]:
        return list(self._days[max(self._days)])

    def define(self, project: wr.Project, name: str) -> None:
        source = wr.EntitySource(name=name, snapshots=str(self.folder), partition="ds", time="ts")
        project.source(name, source)


class Updates(ChangingSource):
    """A shard to which others append, and which they compact."""

    def begin(self) -> None:
        self._shard, self._net = Shard.create(self.folder, SCHEMA, key=["kind"]), Counter[Row]()
        self.change()

    def change(self) -> None:
        new = Counter(self.some())
        for row in self._pick.sample(sorted(self._net), min(len(self._net), 2)):
            new[row] -= self._net[row]
        rows = table(list(new)).append_column("_diff", pa.array(new.values(), pa.int64()))
        lower = self._shard.upper
        self._shard.append(rows, lower=lower, upper=lower + 10)
        self._net.update(new)
        self._net = +self._net
        if self._pick.random() < 0.2:
            self._shard.advance_since(self._shard.upper - 1)
            self._shard.compact(everything=True)

    def rows(self) -> list[Row]:
        return list(self._net.elements())

    def define(self, project: wr.Project, name: str) -> None:
        project.source(name, wr.EntitySource(name=name, shard=str(self.folder), time="ts"))


SOURCES: dict[str, Any] = {
    "files": Files,
    "delta": ChangeData,
    "days": Snapshots,
    "shard": Updates,
}
