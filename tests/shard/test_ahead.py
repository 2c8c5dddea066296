"""Fetching ahead, from a store that is far away: the same rows, in order, by requests that overlap.

The store is a folder whose files are opened by a class that watches its requests, so that nothing
here depends on time.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import build, in_slices, small_pieces

from windrow import Consolidation, Shard, by_columns, col
from windrow.arrangements.rows import SortedRows
from windrow.errors import OptionError, StorageError
from windrow.shard import ahead, fetched, part
from windrow.shard.ahead import Ahead
from windrow.shard.cache import PartCache
from windrow.shard.read import Read
from windrow.storage.store import Store

EVENTS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
levels = pytest.mark.parametrize("level", list(Consolidation), ids=lambda level: level.value)


@dataclass
class Far:
    """What is asked of the store. `answer` is called, with a part's name, before each answer."""

    answer: Callable[[str], None] = lambda name: None
    opened: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    open_files: int = 0
    under_way: int = 0
    most_under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        with self.lock:
            self.requests[name] += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            self.answer(name)
            yield
        finally:
            with self.lock:
                self.under_way -= 1


class FarFile:
    """An open file of the store, as far as reading ahead asks of one."""

    def __init__(self, far: Far, path: Path) -> None:
        self._far, self._path = far, path
        with far.lock:
            far.opened[path.name] += 1
            far.open_files += 1

    def size(self) -> int:
        return self._path.stat().st_size

    def read_at(self, count: int, offset: int) -> bytes:
        with self._far.request(self._path.name):
            return self._path.read_bytes()[offset : offset + count]

    def close(self) -> None:
        with self._far.lock:
            self._far.open_files -= 1


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Far:
    return watched(monkeypatch)


def watched(patch: pytest.MonkeyPatch) -> Far:
    far = Far()
    real = Store.open_input

    def open_input(store: Store, name: str) -> Any:
        if store.is_local:
            return real(store, name)
        return FarFile(far, Path(store.uri.removeprefix("far://")) / name)

    patch.setattr(Store, "open_input", open_input)
    return far


def from_afar(read: Read, **ahead: int) -> Read:
    """The same read from the same files, as if they were far away."""
    store = Store("far://" + read.scan.store.uri)
    scan = replace(read.scan, store=store, ahead=Ahead(**ahead))
    return Read(scan, read.parts, read.level)


def fetching_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("windrow-fetch")]


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 100 updates, and every part large enough to be fetched in blocks."""
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(fetched, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(fetched, "WHOLE_BYTES", 0)
    monkeypatch.setattr(fetched, "TAIL_BYTES", 1_000)
    monkeypatch.setattr(fetched, "GAP_BYTES", 0)


def events(count: int, start: int = 0) -> pa.Table:
    n = np.arange(start, start + count)
    return pa.table({"k": n * 7_919 % 1_009, "n": n, "s": [f"{i // 10:06d}" for i in n]})


def shard_of(folder: Path, *, runs: int, rows: int, part_bytes: int = 1 << 20) -> Shard:
    shard = Shard.create(folder / "s", EVENTS, key=["k"], order=by_columns("n"))
    for run in range(runs):
        table = events(rows, start=run * rows // 2)
        shard.append(table, lower=run, upper=run + 1, part_bytes=part_bytes)
    return shard


def meet(far: Far, parties: int, counts: Callable[[], bool] = lambda: True) -> None:
    """No request that counts is answered before `parties` of them are under way; then all are."""
    barrier = threading.Barrier(parties)
    met = threading.Event()

    def answer(_: str) -> None:
        if counts() and not met.is_set():
            barrier.wait(timeout=60)
            met.set()

    far.answer = answer


# The same rows


@settings(max_examples=40)
@given(st.data())
def test_reads_from_afar_equal_local_ones(data: st.DataObject) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        small_pieces(),
    ):
        patch.setattr(fetched, "ROW_GROUP_ROWS", 3)
        patch.setattr(fetched, "WHOLE_BYTES", data.draw(st.sampled_from([0, 3_000, 1 << 20])))
        patch.setattr(fetched, "TAIL_BYTES", data.draw(st.sampled_from([8, 500, 5_000])))
        patch.setattr(fetched, "GAP_BYTES", data.draw(st.sampled_from([0, 200])))
        far = watched(patch)
        shard, _, values = build(data, folder)
        options: dict[str, Any] = {
            "columns": data.draw(
                st.none() | st.lists(st.sampled_from(shard.schema.names), unique=True)
            ),
            "limit": data.draw(st.none() | st.integers(0, 8)),
            "cache": None,
        }
        if data.draw(st.booleans()):
            options["keys"] = {"k": data.draw(st.lists(values["k"], max_size=3))}
        if data.draw(st.booleans()):
            options["where"] = ~col("k").is_null()
        limits = {
            "requests": data.draw(st.integers(1, 5)),
            "bytes": data.draw(st.sampled_from([1, 2_000, 1 << 20])),
        }
        slices = data.draw(st.integers(1, 3))
        for level in Consolidation:
            read = shard.snapshot(consolidate=level, **options)
            if data.draw(st.booleans()):
                read = shard.changes(shard.since, consolidate=level, **options)
            distant = from_afar(read, **limits)
            near, there = in_slices(read, slices), in_slices(distant, slices)
            assert repr(there.to_pylist()) == repr(near.to_pylist())
            assert repr(distant.to_table().to_pylist()) == repr(read.to_table().to_pylist())
            assert distant.counters.updates_read == read.counters.updates_read
        assert far.most_under_way <= limits["requests"]
        assert (far.open_files, fetching_threads()) == (0, [])


@levels
def test_order_is_kept_over_parts_and_row_groups(
    tmp_path: Path, far: Far, small_groups: None, level: Consolidation
) -> None:
    shard = shard_of(tmp_path, runs=3, rows=3_000, part_bytes=10_000)
    assert shard.stats().parts > 20
    read = shard.snapshot(consolidate=level)
    distant = from_afar(read)
    assert distant.to_table() == read.to_table()
    assert set(far.opened) == {p.path for p in shard.parts()}
    assert set(far.opened.values()) == {1}
    assert far.open_files == 0


def test_arrangements_are_fetched_ahead(tmp_path: Path, far: Far, small_groups: None) -> None:
    shard = shard_of(tmp_path, runs=3, rows=1_000, part_bytes=1)
    read = shard.snapshot(consolidate="none")
    near = SortedRows(read.scan, read.parts).below(None)
    meet(far, 3)
    rows = SortedRows(from_afar(read).scan, read.parts)
    assert rows.below(None) == near
    assert far.most_under_way >= 3
    del rows
    assert (far.open_files, fetching_threads()) == (0, [])


# What is requested, and when


@levels
def test_parts_are_fetched_several_at_a_time(
    tmp_path: Path, far: Far, level: Consolidation
) -> None:
    """One run of many parts, and many runs of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "ROW_GROUP_ROWS", 100)
        one = shard_of(tmp_path / "one", runs=1, rows=2_000, part_bytes=1)
    many = shard_of(tmp_path / "many", runs=20, rows=100)
    for shard in (one, many):
        meet(far, 7)  # and one more if the reader fetches itself what no thread has begun
        read = shard.snapshot(consolidate=level)
        assert from_afar(read, requests=8).to_table() == read.to_table()
        assert far.most_under_way in (7, 8)


def test_row_groups_of_one_part_are_fetched_several_at_a_time(
    tmp_path: Path, far: Far, small_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shard_of(tmp_path, runs=1, rows=2_000)
    assert shard.stats().parts == 1
    here = threading.local()

    def fetch_part(store: Store, wanted: fetched.WantedPart) -> Any:
        here.opening = True
        try:
            return fetched.fetch_part(store, wanted)
        finally:
            here.opening = False

    monkeypatch.setattr(ahead, "fetch_part", fetch_part)
    meet(far, 4, lambda: not getattr(here, "opening", False))
    read = shard.snapshot()
    assert from_afar(read, requests=5).to_table() == read.to_table()
    assert far.most_under_way in (4, 5)


def test_a_small_part_is_one_request(tmp_path: Path, far: Far) -> None:
    shard = shard_of(tmp_path, runs=5, rows=100)
    from_afar(shard.snapshot()).to_table()
    assert set(far.requests.values()) == {1}


@pytest.mark.parametrize("columns", [None, ["a"], ["a.b"], ["list"], []])
def test_nothing_is_requested_twice_or_in_vain(
    tmp_path: Path, far: Far, small_groups: None, columns: list[str] | None
) -> None:
    """The ranges that are computed from the footer are those that Arrow reads."""
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("a", pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])),
            ("a.b", pa.string()),
            ("list", pa.list_(pa.map_(pa.string(), pa.float64()))),
            ("few", pa.string()),
        ]
    )
    rows = [
        {
            "k": i,
            "a": {"b": i, "c": [str(i)] * (i % 3)},
            "a.b": f"{i:030}",
            "list": [[("x", i / 7)]] * (i % 2),
            "few": "abc"[i % 3],
        }
        for i in range(1_000)
    ]
    shard = Shard.create(tmp_path / "s", schema, key=["k"])
    shard.append(pa.Table.from_pylist(rows, schema), lower=0, upper=1)
    read = shard.snapshot(columns=columns)
    local = read.to_table()
    asked: list[tuple[int, int]] = []
    real = FarFile.read_at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            FarFile,
            "read_at",
            lambda self, count, at: asked.append((at, at + count)) or real(self, count, at),
        )
        assert from_afar(read).to_table() == local
    # The footer is longer than the tail, so it is asked for again as a whole.
    data = sorted(span for span in asked if span[1] < shard.parts()[0].bytes)
    assert len(data) == len(set(data))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(data))
    if columns == []:
        assert sum(end - start for start, end in data) < shard.parts()[0].bytes / 3


def test_one_request_at_a_time_needs_no_thread(tmp_path: Path, far: Far) -> None:
    shard = shard_of(tmp_path, runs=6, rows=100)
    threads: list[str] = []
    far.answer = lambda _: threads.extend(fetching_threads())
    read = shard.snapshot()
    assert from_afar(read, requests=1).to_table() == read.to_table()
    assert (far.most_under_way, threads) == (1, [])


@pytest.mark.parametrize("level", ["none", "monotonic", "full"])
def test_what_is_ahead_is_bounded_by_bytes(
    tmp_path: Path, far: Far, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", 100)
    shard = shard_of(tmp_path, runs=1, rows=5_000, part_bytes=1)
    largest = max(p.bytes for p in shard.parts())
    read = shard.changes(0, consolidate=level)
    batches = from_afar(read, requests=16, bytes=4 * largest).batches()
    next(batches)
    batches.close()  # whatever was under way has ended
    # One in the hands of the reader, and four ahead, or more if they are smaller.
    assert 1 <= len(far.opened) <= 6


def test_a_request_larger_than_the_bound_is_made_by_itself(tmp_path: Path, far: Far) -> None:
    shard = shard_of(tmp_path, runs=9, rows=100)
    read = shard.snapshot()
    assert from_afar(read, requests=8, bytes=1).to_table() == read.to_table()
    assert far.most_under_way <= 2


def test_a_limited_read_starts_with_little(
    tmp_path: Path, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "ROW_GROUP_ROWS", 100)
    shard = shard_of(tmp_path, runs=1, rows=5_000, part_bytes=1)
    found = from_afar(shard.changes(0, limit=7)).to_table()
    assert found.num_rows == 7
    assert len(far.opened) <= 3
    far.opened.clear()
    assert from_afar(shard.changes(0, limit=2_000)).to_table().num_rows == 2_000
    assert 20 <= len(far.opened) <= 50


# Ends


@levels
@pytest.mark.parametrize("how", ["limit", "closed", "dropped"])
def test_an_early_end_leaves_no_file_open_and_no_thread(
    tmp_path: Path, far: Far, small_groups: None, level: Consolidation, how: str
) -> None:
    shard = shard_of(tmp_path, runs=3, rows=3_000, part_bytes=20_000)
    limit = 10 if how == "limit" else None
    batches = from_afar(shard.snapshot(consolidate=level, limit=limit)).batches()
    if how == "limit":
        assert sum(batch.num_rows for batch in batches) == 10
    else:
        assert next(batches).num_rows
        if how == "closed":
            batches.close()
        del batches
    assert (far.open_files, fetching_threads()) == (0, [])
    assert far.under_way == 0


@levels
@pytest.mark.parametrize("when", ["opening", "reading"])
def test_an_error_ahead_surfaces_when_the_read_gets_there(
    tmp_path: Path, far: Far, small_groups: None, level: Consolidation, when: str
) -> None:
    shard = shard_of(tmp_path, runs=1, rows=3_000, part_bytes=20_000)
    parts = sorted(shard.parts(), key=lambda p: p.order)
    assert len(parts) >= 4
    bad = parts[2].path

    def answer(name: str) -> None:
        if name == bad and (when == "opening" or far.requests[name] > 3):
            raise OSError("the store is out of order")

    far.answer = answer
    read = from_afar(shard.changes(0, consolidate=level))
    with pytest.raises(StorageError, match=f"part {bad} cannot be read: .*out of order"):
        read.to_table()
    if level is not Consolidation.BEST_EFFORT:
        assert read.counters.updates_emitted >= parts[0].rows + parts[1].rows
    assert (far.open_files, fetching_threads()) == (0, [])


@pytest.mark.parametrize("whole", [0, 1 << 20])
def test_a_part_that_is_gone_or_damaged_is_named(
    tmp_path: Path, far: Far, small_groups: None, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched, "WHOLE_BYTES", whole)
    shard = shard_of(tmp_path, runs=4, rows=1_000)
    read = shard.snapshot()
    victim = shard.parts()[2].path
    path = tmp_path / "s" / victim
    data = path.read_bytes()
    for damage in (b"", b"garbage" * 1_000, data[: len(data) // 2], data[:-4] + b"XXXX"):
        path.write_bytes(damage)
        with pytest.raises(StorageError, match=f"part {victim} cannot be read"):
            from_afar(read).to_table()
    other = next(p.path for p in shard.parts() if p.path != victim)
    path.write_bytes((tmp_path / "s" / other).read_bytes()[:-1])
    with pytest.raises(StorageError, match=f"part {victim}"):
        from_afar(read).to_table()
    assert (far.open_files, fetching_threads()) == (0, [])


def test_a_file_with_other_rows_is_refused(tmp_path: Path, far: Far, small_groups: None) -> None:
    shard = shard_of(tmp_path, runs=1, rows=1_000)
    shard.append(events(500), lower=1, upper=2)
    large, small = sorted(shard.parts(), key=lambda p: -p.rows)
    (tmp_path / "s" / large.path).write_bytes((tmp_path / "s" / small.path).read_bytes())
    with pytest.raises(StorageError, match="bytes, and the log says"):
        from_afar(shard.snapshot()).to_table()
    assert far.open_files == 0


# Lookups


def test_the_cache_is_filled_ahead_and_then_asks_for_nothing(tmp_path: Path, far: Far) -> None:
    shard = shard_of(tmp_path, runs=5, rows=6_000)
    cache = PartCache(str(tmp_path / "cache"), 1 << 30)
    read = shard.snapshot(keys={"k": [1, 2, 3]}, cache=cache)
    expected = shard.snapshot(keys={"k": [1, 2, 3]}, cache=None).to_table()
    meet(far, 5)
    assert from_afar(read).to_table() == expected
    assert far.most_under_way == 5
    far.opened.clear()
    assert from_afar(read).to_table() == expected
    assert not far.opened


def test_a_part_that_leaves_the_cache_is_fetched_again(
    tmp_path: Path, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shard_of(tmp_path, runs=2, rows=6_000)
    cache = PartCache(str(tmp_path / "cache"), 1 << 30)
    read = shard.snapshot(keys={"k": [1, 2, 3]}, cache=cache)
    expected = from_afar(read).to_table()

    def holds(self: PartCache, scan: Any, part: part.Part) -> bool:
        for entry in (tmp_path / "cache").iterdir():
            entry.unlink()
        return True

    monkeypatch.setattr(PartCache, "holds", holds)
    local = Store.open_input
    monkeypatch.setattr(
        Store,
        "open_input",
        lambda store, name: local(Store(store.uri.removeprefix("far://")), name),
    )
    assert from_afar(read).to_table() == expected


# Settings


def test_how_far_ahead_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ahead.default() == Ahead(16, 32 << 20)
    monkeypatch.setenv("WINDROW_FETCH_REQUESTS", "3")
    monkeypatch.setenv("WINDROW_FETCH_BYTES", "1000")
    assert Ahead.default() == Ahead(3, 1_000)
    for wrong in ("0", "-1", "many", "", "1.5"):
        monkeypatch.setenv("WINDROW_FETCH_REQUESTS", wrong)
        with pytest.raises(OptionError, match="WINDROW_FETCH_REQUESTS"):
            Ahead.default()
