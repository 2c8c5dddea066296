"""Damage at random: flipped bits, cut, swapped and deleted files, and what reads make of them.

    python tests/campaigns/damage.py --faults 2000 [--seed 0]

A fault is put into one file of a shard (parts, log entries, checkpoint, head), of the tables of a
project (records, checkpoints, head, shards and what waits for them), of the cache, or of a folder
of source files; then everything is read, and the file is restored. Each read has to give the right
rows, or an error of ours that names the damaged file. It runs in a process of its own, since the
end of the process is an outcome too. One line of JSON counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from history_child import hurry  # noqa: E402
from history_model import define, write  # noqa: E402

from windrow import Shard  # noqa: E402
from windrow.errors import WindrowError  # noqa: E402
from windrow.shard.cache import PartCache  # noqa: E402
from windrow.shard.log import Log  # noqa: E402
from windrow.shard.spec import ShardSpec, by_hash  # noqa: E402
from windrow.sources.columns import Taken  # noqa: E402
from windrow.sources.files import FileRows, ParquetFiles  # noqa: E402
from windrow.storage.store import Store  # noqa: E402
from windrow.views.history.history import History  # noqa: E402

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("x", pa.float64())])
KINDS = ("flip", "flip", "flip", "flip", "truncate", "empty", "swap", "delete")


def rows(first: int, count: int) -> pa.Table:
    at = np.arange(first, first + count)
    names = pa.array([f"name {n % 13}" if n % 5 else None for n in at])
    return pa.table([pa.array(at % 997), names, pa.array(at / 7)], schema=SCHEMA)


@dataclass(frozen=True)
class Fault:
    """What happens to a file."""

    kind: str
    file: Path
    at: int = 0
    other: Path | None = None

    def inject(self) -> None:
        data = self.file.read_bytes()
        match self.kind:
            case "flip":
                changed = bytearray(data)
                changed[self.at // 8] ^= 1 << (self.at % 8)
                self.file.write_bytes(changed)
            case "truncate":
                self.file.write_bytes(data[: self.at // 8])
            case "empty":
                self.file.write_bytes(b"")
            case "swap":
                assert self.other is not None
                self.file.write_bytes(self.other.read_bytes())
            case "delete":
                self.file.unlink()


def choose(rng: random.Random, files: list[Path]) -> Fault:
    file = rng.choice(files)
    alike = [other for other in files if other != file and other.suffix == file.suffix]
    kind = rng.choice(KINDS)
    if kind == "swap" and not alike:
        kind = "flip"
    other = rng.choice(alike) if kind == "swap" else None
    return Fault(kind, file, rng.randrange(max(8 * file.stat().st_size, 1)), other)


@dataclass(frozen=True)
class Target:
    """Files, and a way to read them: the same value every time, unless they are damaged."""

    name: str
    files: Callable[[], list[Path]]
    read: Callable[[], Any]


def shard_target(folder: Path) -> Target:
    spec = ShardSpec.make(SCHEMA, ["k"], by_hash())
    interval = {"delta.checkpointInterval": "5"}
    shard = Shard(Log.create(Store.at(folder / "shard"), spec, interval))
    for lower in range(8):
        shard.append(rows(600 * lower, 500), lower=lower, upper=lower + 1)
        if lower == 5:
            shard.compact()
            shard.vacuum(retention_hours=0)

    def read() -> Any:
        shard = Shard.open(folder / "shard")
        found = shard.snapshot().to_table()
        changes = shard.changes(3).to_table()
        keys = shard.snapshot(keys={"k": [3, 500, 996]}, cache=None).to_table()
        return shard.upper, *(canonical(table) for table in (found, changes, keys))

    def files() -> list[Path]:
        found = (folder / "shard").rglob("*")
        return sorted(path for path in found if path.is_file() and "_holds" not in path.parts)

    return Target("shard", files, read)


def tables_target(folder: Path) -> Target:
    """Tables of a project; of some, the last batches are named by records alone."""
    hurry()
    root = folder / "project"
    history = History(Store.at(root))
    ids = define(history, 3)
    for number in range(10):
        held = [(k, f"{number} {k}", 1) for k in range(40)]
        write(history, dict.fromkeys(ids, held))
        if number == 5:
            history.roll_forward()
            history.maintain()
            history.sweep(hours=0)
        if number == 7:
            history.roll_forward(ids[:1])

    def read() -> Any:
        found = History(Store.at(root))
        tables = [found.collection(id) for id in found.collections()]
        reads = [
            r
            for one in tables
            for r in (one.snapshot(), one.changes(8, found.time + 1), one.snapshot(9))
        ]
        return found.version, found.time, *(canonical(one.to_table()) for one in reads)

    def files() -> list[Path]:
        kept = [path for path in root.rglob("*") if path.is_file()]
        return sorted(path for path in kept if not {"leases", "_holds"} & {*path.parts})

    return Target("tables", files, read)


def cache_target(folder: Path) -> Target:
    shard = Shard.create(folder / "cached", SCHEMA, key=["k"])
    shard.append(rows(0, 6_000), lower=0, upper=1)
    cache = PartCache(str(folder / "cache"), 1 << 30)

    def read() -> Any:
        from windrow.shard import cache as module
        from windrow.shard import recent

        module._verified.clear()  # as a new process would
        recent.forget()
        found = Shard.open(folder / "cached").snapshot(keys={"k": [3, 500, 996]}, cache=cache)
        return canonical(found.to_table())

    read()
    return Target("cache", lambda: sorted((folder / "cache").glob("*.arrow")), read)


def source_target(folder: Path) -> Target:
    place = folder / "source"
    place.mkdir()
    for number in range(4):
        table = rows(700 * number, 700)
        pq.write_table(
            table, place / f"{number}.parquet", row_group_size=300, write_page_checksum=True
        )
    columns = tuple(Taken(field.name, field.name, field.type) for field in SCHEMA)

    def read() -> Any:
        uris = sorted(str(path) for path in place.iterdir())
        files = ParquetFiles.read(uris, None)
        for file, footer in zip(files.files, files.footers, strict=True):
            if footer.schema != SCHEMA:
                raise WindrowError(f"{file.uri} has other columns")  # as binding a table says
        made = FileRows(files.shares(2), columns, ())
        tables = [pa.Table.from_batches(made.batches(task)) for task in range(made.tasks)]
        return canonical(pa.concat_tables(tables))

    return Target("source", lambda: sorted(place.iterdir()), read)


def canonical(table: pa.Table) -> Any:
    return sorted(map(repr, table.to_pylist()))


def outcome(target: Target, fault: Fault, expected: Any) -> str:
    """What a read made of the fault, which is there already."""
    try:
        found = target.read()
    except WindrowError as error:
        named = {fault.file.name, *([fault.other.name] if fault.other else [])}
        return "error" if any(name in str(error) for name in named) else f"unnamed: {error}"
    if found == expected:
        return "right"
    if fault.kind in ("delete", "swap") and target.name == "source":
        return "right"  # a folder that holds other files
    return "OTHER ROWS"


def faults(target: Target, rng: random.Random, count: int) -> Iterator[tuple[Fault, str]]:
    expected = target.read()
    for _ in range(count):
        fault = choose(rng, target.files())
        data, stamp = fault.file.read_bytes(), fault.file.stat()
        fault.inject()
        try:
            yield fault, outcome(target, fault, expected)
        finally:
            fault.file.write_bytes(data)
            os.utime(fault.file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))


def campaign(count: int, seed: int) -> None:
    """Print a line before each fault and one after it, for the one who counts."""
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="windrow-damage-"))
    try:
        shares = {shard_target: 0.4, tables_target: 0.3, cache_target: 0.1, source_target: 0.2}
        for make, share in shares.items():
            target = make(folder)
            for fault, found in faults(target, rng, int(count * share)):
                where = fault.file.name.rpartition(".")[2] if fault.file.suffix else "file"
                line = {"target": target.name, "kind": fault.kind, "what": where, "outcome": found}
                if found not in ("right", "error"):
                    line["fault"] = f"{fault.file} bit {fault.at}"
                print(json.dumps(line), flush=True)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"finished": True}), flush=True)


def run(count: int, seed: int) -> dict[str, Any]:
    """Run a campaign in a process of its own, and count what it did."""
    command = [sys.executable, __file__, "--child", "--faults", str(count), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    finished = bool(lines) and lines[-1] == {"finished": True}
    found = [line for line in lines if "outcome" in line]
    outcomes: dict[str, dict[str, int]] = {}
    for target in ("shard", "tables", "cache", "source"):
        mine = [line["outcome"].partition(":")[0] for line in found if line["target"] == target]
        counts = Counter(mine)
        outcomes[target] = dict(counts)
    wrong = [line for line in found if line["outcome"] not in ("right", "error")]
    return {
        "faults": len(found),
        "seed": seed,
        "outcomes": outcomes,
        "survived": finished and done.returncode == 0,
        "wrong": wrong[:20],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        campaign(options.faults, options.seed)
        return
    report = run(options.faults, options.seed)
    print(json.dumps(report))
    sys.exit(0 if report["survived"] and not report["wrong"] else 1)


if __name__ == "__main__":
    main()
