"""Parts that a process remembers: what it has looked up before, or written, is not read again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from windrow import Shard
from windrow.shard import files, recent, runs
from windrow.shard.cache import PartCache
from windrow.shard.recent import Recent, RecentParts, mark_of
from windrow.storage.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
STORE = Store.at("/nowhere")


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    recent.forget()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of parts, as they are opened."""
    found: list[str] = []
    open_part = files.open_part

    def watched(store: Store, part: object) -> object:
        found.append(part.path)  # type: ignore[attr-defined]
        return open_part(store, part)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "open_part", watched)
    return found


def table(*bytes_: int) -> pa.Table:
    return pa.table({"x": pa.array([b"0" * size for size in bytes_], pa.binary())})


def test_the_least_recently_used_go_first() -> None:
    one = table(100)
    kept = RecentParts(3 * one.nbytes)
    for path in "abc":
        kept.put(STORE, path, Recent(one))
    assert kept.get(STORE, "a") is one
    kept.put(STORE, "d", Recent(one))
    assert [path for path in "abcd" if kept.get(STORE, path) is not None] == ["a", "c", "d"]
    kept.put(STORE, "d", Recent(table(100, 100, 100)))  # in place of the other
    assert [path for path in "abcd" if kept.get(STORE, path) is not None] == ["d"]
    kept.put(STORE, "e", Recent(table(1000)))  # more than there is room for
    assert [path for path in "abcde" if kept.get(STORE, path) is not None] == []


def test_a_file_that_was_written_to_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "entry"
    kept = RecentParts(1 << 20)
    for change in (lambda: file.write_bytes(b"cut"), file.unlink):
        file.write_bytes(b"what is mapped")
        kept.put(STORE, "a", Recent(table(8), str(file), mark_of(file.stat())))
        assert kept.get(STORE, "a") is not None
        change()
        assert kept.get(STORE, "a") is None


def test_large_parts_are_not_kept_decoded() -> None:
    recent.remember(STORE, "small", table(10))
    recent.remember(STORE, "large", table(recent.LARGEST_BYTES + 1))
    assert recent.recent(STORE, "small") is not None
    assert recent.recent(STORE, "large") is None


@pytest.mark.parametrize("rows", [10, 5_000])
def test_only_new_parts_are_read(tmp_path: Path, opened: list[str], rows: int) -> None:
    """Small parts are decoded once, larger ones mapped once; equal prefixes are no equal keys."""
    cache = PartCache(str(tmp_path / "cache"), 1 << 30)
    shard = Shard.create(tmp_path / "shard", SCHEMA, key=["k"])

    def looked_up() -> list[str]:
        found = shard.snapshot(keys={"k": [3, 4, rows + 1]}, cache=cache).to_table()
        return sorted(found.column("name").to_pylist())

    for time in range(3):
        named = [f"{time} {k}" for k in range(rows)]
        shard.append(
            pa.table({"k": range(rows), "name": named}, schema=SCHEMA), lower=time, upper=time + 1
        )
        opened.clear()
        assert looked_up() == sorted(f"{t} {k}" for t in range(time + 1) for k in (3, 4))
        assert len(opened) == 1
        assert looked_up() == sorted(f"{t} {k}" for t in range(time + 1) for k in (3, 4))
        assert len(opened) == 1
