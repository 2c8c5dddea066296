"""Sources: files that others write, as relations. What is there now is what queries see."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import ask
from deltalake import DeltaTable, write_deltalake

import windrow as wr
from windrow.errors import (
    RelationExistsError,
    RelationNotFoundError,
    SchemaError,
    StorageError,
    UnsupportedSQL,
    WindrowError,
)
from windrow.views.sources.files import SourceFiles

Row = tuple[int, str]
COLUMNS = "(id INT, shop STRING)"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were handed to Spark's reader, by their names."""
    found: list[str] = []
    plain = SourceFiles.read

    def reading(
        self: SourceFiles, session: Any, schema: Any, places: Sequence[str], base: str
    ) -> Any:
        found.extend(os.path.basename(place) for place in places)
        return plain(self, session, schema, places, base)

    monkeypatch.setattr(SourceFiles, "read", reading)
    return found


def put(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Write, or rewrite, a file of a format that its name tells."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    if name.endswith(".parquet"):
        ids, shops = [row[0] for row in rows], [row[1] for row in rows]
        pq.write_table(pa.table({"id": pa.array(ids, pa.int32()), "shop": shops}), file)
    elif name.endswith(".csv"):
        file.write_text("".join(["id,shop\n", *(f"{id},{shop}\n" for id, shop in rows)]))
    else:
        lines = [json.dumps({"id": id, "shop": shop}) for id, shop in rows]
        file.write_text("\n".join(lines) + "\n")
    before = file.stat()
    # As if it was written later than what was there: clocks of file systems are coarse.
    put.clock += 1_000_000_000  # type: ignore[attr-defined]
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + put.clock))  # type: ignore[attr-defined]


put.clock = 0  # type: ignore[attr-defined]


def create(project: wr.Project, folder: Path, format: str, columns: str = COLUMNS) -> None:
    options = "OPTIONS (header 'true')" if format == "csv" else ""
    project.sql(f"CREATE TABLE s {columns} USING {format} {options} LOCATION '{folder}'")


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_new_rewritten_and_removed_files(
    project: wr.Project, tmp_path: Path, read: list[str], format: str
) -> None:
    folder = tmp_path / "data of shops"
    put(folder, f"a.{format}", [(1, "Bern"), (1, "Bern"), (2, "Oslo")])
    put(folder, f"b b.{format}", [(3, "Rome")])
    create(project, folder, format)
    assert read == []  # until somebody asks
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT shop, count(*) AS n FROM s GROUP BY shop")
    assert sorted(read) == [f"a.{format}", f"b b.{format}"]
    read.clear()
    assert ask(project, "SELECT * FROM s") == [(1, "Bern"), (1, "Bern"), (2, "Oslo"), (3, "Rome")]
    assert ask(project, "SELECT * FROM v") == [("Bern", 2), ("Oslo", 1), ("Rome", 1)]
    version = project._statements.history.version
    project.tick()
    assert read == []
    assert project._statements.history.version == version

    put(folder, f"c.{format}", [(4, "Bern")])
    project.tick()
    assert read == [f"c.{format}"]
    assert sorted(map(tuple, project.read("v").collect())) == [
        ("Bern", 3),
        ("Oslo", 1),
        ("Rome", 1),
    ]

    read.clear()
    put(folder, f"a.{format}", [(1, "Bern"), (5, "Oslo"), (6, "Kyiv")])
    (folder / f"b b.{format}").unlink()
    put(folder, f"_c.{format}", [(9, "nobody reads this")])
    assert ask(project, "SELECT * FROM s") == [(1, "Bern"), (4, "Bern"), (5, "Oslo"), (6, "Kyiv")]
    assert read == [f"a.{format}"]
    assert ask(project, "SELECT * FROM v") == [("Bern", 2), ("Kyiv", 1), ("Oslo", 1)]

    for file in folder.iterdir():
        file.unlink()
    read.clear()
    assert ask(project, "SELECT * FROM s") == ask(project, "SELECT * FROM v") == []
    assert read == []


def test_versions_of_a_delta_table(project: wr.Project, tmp_path: Path, read: list[str]) -> None:
    uri = str(tmp_path / "delta")

    def rows(*found: Row) -> pa.Table:
        ids = pa.array([id for id, _ in found], pa.int32())
        return pa.table({"id": ids, "shop": [shop for _, shop in found]})

    write_deltalake(uri, rows((1, "Bern"), (2, "Oslo")), partition_by=["shop"])
    project.sql(f"CREATE TABLE s USING delta LOCATION '{uri}'")
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT shop, sum(id) AS n FROM s GROUP BY shop")
    assert ask(project, "SELECT * FROM s") == [(1, "Bern"), (2, "Oslo")]
    assert len(read) == 2
    write_deltalake(uri, rows((3, "Bern")), mode="append")
    assert ask(project, "SELECT * FROM v") == [("Bern", 4), ("Oslo", 2)]
    assert len(read) == 3
    start = project._statements.history.time
    DeltaTable(uri).optimize.compact()
    assert ask(project, "SELECT * FROM v") == [("Bern", 4), ("Oslo", 2)]
    assert len(read) == 4  # the file that two have become
    assert project.changes("s", start).collect() == []  # the rows are the same
    DeltaTable(uri).delete("shop = 'Oslo'")
    assert ask(project, "SELECT * FROM v") == [("Bern", 4)]
    write_deltalake(uri, rows((7, "Kyiv")), mode="overwrite")
    assert ask(project, "SELECT * FROM s") == [(7, "Kyiv")]
    with pytest.raises(StorageError, match=r"is a Delta table.* USING delta"):
        project.sql(f"CREATE TABLE t {COLUMNS} USING parquet LOCATION '{uri}'")


def test_folders_are_columns(project: wr.Project, tmp_path: Path, read: list[str]) -> None:
    folder = tmp_path / "days"
    put(folder / "ds=2024-05-01", "x.parquet", [(1, "Bern")])
    put(folder / "ds=2024-05-02", "x.parquet", [(2, "Oslo")])
    create(project, folder, "parquet", columns="")
    found = project.read("s").schema.simpleString()
    assert found == "struct<id:int,shop:string,ds:date>"
    assert ask(project, "SELECT id, cast(ds AS STRING) FROM s") == [
        (1, "2024-05-01"),
        (2, "2024-05-02"),
    ]
    read.clear()
    put(folder / "ds=2024-05-03", "x.parquet", [(3, "Rome")])
    shutil.rmtree(folder / "ds=2024-05-01")
    assert ask(project, "SELECT id, day(ds) FROM s") == [(2, 2), (3, 3)]
    assert read == ["x.parquet"]


def test_columns_that_are_given_and_inferred(project: wr.Project, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    put(folder, "a.json", [(1, "Bern")])
    project.sql(f"CREATE TABLE given (shop STRING, more INT) USING json LOCATION '{folder}'")
    project.sql(f"CREATE TABLE inferred USING json LOCATION '{folder}'")
    assert ask(project, "SELECT * FROM given") == [("Bern", None)]
    assert ask(project, "SELECT * FROM inferred") == [(1, "Bern")]
    assert project.read("inferred").schema.simpleString() == "struct<id:bigint,shop:string>"
    (folder / "b.json").write_text('{"id": 2, "shop": "Oslo", "other": true}\n')
    assert ask(project, "SELECT * FROM inferred") == [(1, "Bern"), (2, "Oslo")]  # as at first
    project.sql(f"CREATE TABLE one USING json LOCATION '{folder / 'a.json'}'")
    assert ask(project, "SELECT * FROM one") == [(1, "Bern")]
    interval = "(id INTERVAL DAY TO SECOND, shop STRING COLLATE UNICODE_CI)"
    pq.write_table(pa.table({"shop": ["Bern", "bern"]}), tmp_path / "types.parquet")
    project.sql(f"CREATE TABLE t {interval} USING parquet LOCATION '{tmp_path}/types.parquet'")
    assert ask(project, "SELECT count(DISTINCT shop), count(id) FROM t") == [(1, 0)]


def test_what_is_said_of_a_source(project: wr.Project, tmp_path: Path) -> None:
    put(tmp_path / "data", "a.csv", [(1, "Bern")])
    create(project, tmp_path / "data", "csv")
    assert ask(project, "SELECT * FROM s WHERE id > 0") == [(1, "Bern")]
    assert ask(project, "SHOW TABLES") == [("s", "source", None)]
    assert ask(project, "SHOW COLUMNS IN s") == [("id",), ("shop",)]
    assert ask(project, "DESCRIBE s") == [("id", "int", None), ("shop", "string", None)]
    details = {row[0]: row[1] for row in ask(project, "DESCRIBE EXTENDED s")}
    assert details["Format"] == "csv"
    assert details["Files"] == "1"
    assert details["Location"] == str(tmp_path / "data")
    feed = project.changes("s", project._statements.history.time - 1)
    assert feed.columns[:3] == ["id", "shop", "_change_type"]
    text = ask(project, "SHOW CREATE TABLE s")[0][0]
    project.sql("CREATE TABLE copy AS SELECT * FROM s")
    project.sql("DROP TABLE s")
    assert (tmp_path / "data" / "a.csv").exists()  # files are not ours
    project.sql(text)
    assert ask(project, "SELECT * FROM s") == ask(project, "SELECT * FROM copy")
    assert ask(project, "SHOW CREATE TABLE s")[0][0] == text


def test_sources_in_statements(project: wr.Project, tmp_path: Path) -> None:
    put(tmp_path / "data", "a.parquet", [(1, "Bern")])
    create(project, tmp_path / "data", "parquet")
    project.sql("CREATE TABLE t (id INT, shop STRING)")
    project.sql("INSERT INTO t SELECT * FROM s")
    put(tmp_path / "data", "b.parquet", [(2, "Oslo")])
    project.sql("DELETE FROM t WHERE id NOT IN (SELECT id + 1 FROM s)")
    project.sql("INSERT INTO t SELECT * FROM s")
    assert ask(project, "SELECT * FROM t") == [(1, "Bern"), (2, "Oslo")]
    for text in (
        "INSERT INTO s VALUES (1, 'x')",
        "DELETE FROM s",
        "UPDATE s SET id = 2",
        "TRUNCATE TABLE s",
    ):
        with pytest.raises(RelationNotFoundError, match=r"'s' is a source.* change the files"):
            project.sql(text)
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    with pytest.raises(WindrowError, match="source s is used by the views v"):
        project.sql("DROP TABLE s")
    with pytest.raises(RelationExistsError, match="there is a source 's' already"):
        create(project, tmp_path / "data", "parquet")
    project.sql(f"CREATE TABLE IF NOT EXISTS s USING parquet LOCATION '{tmp_path / 'data'}'")


def test_another_process_reads_on(spark: Any, tmp_path: Path, read: list[str]) -> None:
    put(tmp_path / "data", "a.parquet", [(1, "Bern")])
    first = wr.Project(tmp_path / "state", spark=spark)
    create(first, tmp_path / "data", "parquet")
    second = wr.Project(tmp_path / "state", spark=spark)
    assert ask(second, "SELECT * FROM s") == ask(first, "SELECT * FROM s") == [(1, "Bern")]
    assert read == ["a.parquet"]
    put(tmp_path / "data", "b.parquet", [(2, "Oslo")])
    assert ask(second, "SELECT * FROM s") == ask(first, "SELECT * FROM s")
    assert read == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize(
    ("name", "content", "error", "says"),
    [
        ("bad.csv", "id,shop\n2,Oslo\nmany,Rome\n", StorageError, "bad.csv.*MALFORMED"),
        ("bad.csv", "shop,id\nOslo,2\n", WindrowError, "bad.csv"),
        ("bad.json", '{"id": 2}\n{"id": \n', StorageError, "bad.json"),
        ("bad.parquet", "no such thing", StorageError, "bad.parquet"),
    ],
)
def test_what_cannot_be_read(
    project: wr.Project,
    tmp_path: Path,
    name: str,
    content: str,
    error: type[Exception],
    says: str,
) -> None:
    folder, format = tmp_path / "data", name.partition(".")[2]
    put(folder, f"a.{format}", [(1, "Bern")])
    create(project, folder, format)
    project.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    put(folder, f"c.{format}", [(3, "Rome")])
    (folder / name).write_text(content)
    with pytest.raises(error, match=f"(?s)source s: .*{says}"):
        project.tick()
    assert [tuple(row) for row in project.read("s").collect()] == [(1, "Bern")]  # nothing of it
    (folder / name).unlink()
    assert ask(project, "SELECT * FROM v") == [(1,), (3,)]


def test_a_folder_that_is_gone_or_empty(project: wr.Project, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.raises(StorageError, match=r"source s: there is nothing at .*data'; check"):
        create(project, folder, "parquet")
    with pytest.raises(StorageError, match="patterns are not taken"):
        create(project, tmp_path / "*.parquet", "parquet")
    folder.mkdir()
    with pytest.raises(SchemaError, match=r"there are no files at .*; list them"):
        create(project, folder, "parquet", columns="")
    create(project, folder, "parquet")
    assert ask(project, "SELECT * FROM s") == []
    put(folder, "a.parquet", [(1, "Bern")])
    assert ask(project, "SELECT * FROM s") == [(1, "Bern")]
    folder.rename(tmp_path / "away")
    with pytest.raises(StorageError, match="Rows that were read from it stay as they were"):
        project.tick()
    assert project.read("s").count() == 1
    (tmp_path / "away").rename(folder)
    assert ask(project, "SELECT * FROM s") == [(1, "Bern")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(a INT) USING orc LOCATION '/x'", "USING orc .* one of parquet, delta, csv, json"),
        ("(a INT) USING csv", "USING csv .* LOCATION"),
        ("(a INT) LOCATION '/x'", "LOCATION .* USING"),
        ("(a INT) USING csv PARTITIONED BY (a) LOCATION '/x'", "PARTITIONED BY.* become columns"),
        ("(a INT NOT NULL) USING csv LOCATION '/x'", "NOT NULL of a"),
        ("(a INT DEFAULT 3) USING csv LOCATION '/x'", "DEFAULT of a"),
    ],
)
def test_sources_that_are_refused(project: wr.Project, text: str, says: str) -> None:
    with pytest.raises(UnsupportedSQL, match=says):
        project.sql(f"CREATE TABLE s {text}")


def test_columns_that_cannot_be(project: wr.Project, tmp_path: Path) -> None:
    pq.write_table(pa.table({"__windrow_file": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="__windrow_file belongs to Windrow"):
        project.sql(f"CREATE TABLE s USING parquet LOCATION '{tmp_path / 'a.parquet'}'")
    put(tmp_path, "b.parquet", [(1, "x")])
    project.sql(f"CREATE TABLE s (id STRING) USING parquet LOCATION '{tmp_path / 'b.parquet'}'")
    with pytest.raises(StorageError, match=r"b\.parquet"):
        project.sql("SELECT * FROM s")


# From Python


def test_event_sources_of_files(project: wr.Project, tmp_path: Path) -> None:
    put(tmp_path / "data", "a.csv", [(1, "Bern")])
    visits = wr.EventSource(name="visits", table=str(tmp_path / "data"), time="id")
    project.source("s", visits)
    project.source("s", visits)  # as a program does that is run again
    assert ask(project, "SELECT * FROM s") == [(1, "Bern")]
    put(tmp_path / "other", "a.parquet", [(1, "Bern")])
    other = wr.EventSource(name="visits", table=tmp_path / "other", time="id")
    with pytest.raises(RelationExistsError, match="source s is there, and reads other files"):
        project.source("s", other)
    project.source("p", other)
    assert ask(project, "SELECT s.id FROM s JOIN p USING (id)") == [(1,)]


def test_definitions_that_cannot_be_relations(project: wr.Project, tmp_path: Path) -> None:
    path = str(tmp_path / "data.csv")
    with pytest.raises(UnsupportedSQL, match="source s: its table is not the path of files"):
        project.source("s", wr.EventSource(name="e", table="visits", time="t"))
    with pytest.raises(UnsupportedSQL, match="PreAggregatedSource cannot be a relation: a row"):
        project.source("s", wr.PreAggregatedSource(name="e", table=path, time="t"))
    with pytest.raises(UnsupportedSQL, match="view='v' is a relation of the project already"):
        project.source("s", wr.EntitySource(name="e", view="v", time="t"))
    with pytest.raises(StorageError, match=r"source s: there is nothing at .*data.csv'"):
        project.source("s", wr.EntitySource(name="e", changes=path, time="t"))
