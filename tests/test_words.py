"""Sorting, merging and consolidating by words, and what happens when hashes truly collide."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from collisions import SEED, chain, colliding_row, hash_long, unhash_long
from oracle import Oracle, count_updates
from strategies import to_table
from windrow import Consolidation, Shard, by_columns, by_hash
from windrow.errors import DataError
from windrow.rows.hashing import hash_keys, hash_rows
from windrow.shard import part
from windrow.shard.spec import Order
from windrow.words.consolidation import consolidate_sorted, consolidate_unsorted
from windrow.words.merging import merge_segments
from windrow.words.sorting import sort_words

INT64 = st.integers(-(2**63), 2**63 - 1)


def random_words(seed: int, width: int, rows: int, spread: int) -> np.ndarray:
    """Words of which each takes about `spread` values, the extremes among them."""
    random = np.random.default_rng(seed)
    words = random.integers(0, spread, (width, rows))
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    replaced = random.random((width, rows)) < 0.1
    words[replaced] = random.choice(extremes, int(replaced.sum()))
    return words


def lexical(words: np.ndarray) -> np.ndarray:
    """The stable permutation that sorts `words`, by NumPy."""
    return np.lexsort(words[::-1])


SIZES = st.one_of(st.integers(0, 40), st.sampled_from([255, 1000, 5000]))


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 4), SIZES, st.sampled_from([1, 2, 10, 10**9]))
def test_sort_words(seed: int, width: int, rows: int, spread: int) -> None:
    words = random_words(seed, width, rows, spread)
    order = sort_words(words)
    assert np.array_equal(np.sort(order), np.arange(rows))
    assert np.array_equal(words[:, order], words[:, lexical(words)])


@pytest.mark.parametrize("stretch", [1, 2, 7, 8, 9, 16, 17, 64, 1000, 6000])
def test_sort_words_within_stretches_of_one_first_word(stretch: int) -> None:
    # Short stretches are sorted by insertion, longer ones by merging blocks of them, the longest
    # by their next word.
    random = np.random.default_rng(stretch)
    first = np.repeat([5, -3, 9], [stretch, 3 * stretch, 1])
    words = np.vstack(
        [first, random.integers(0, 50, first.size), random.integers(0, 3, first.size)]
    )
    words = words[:, random.permutation(first.size)]
    assert np.array_equal(words[:, sort_words(words)], words[:, lexical(words)])
    descending = np.vstack([np.zeros(stretch, np.int64), np.arange(stretch)[::-1]])
    assert np.array_equal(sort_words(descending), np.arange(stretch)[::-1])


@settings(max_examples=150)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    SIZES,
    st.sampled_from([1, 2, 10, 10**9]),
    st.integers(1, 40),
)
def test_merge_segments(seed: int, width: int, rows: int, spread: int, segments: int) -> None:
    words = random_words(seed, width, rows, spread)
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, rows + 1, segments - 1))
    bounds = [0, *cuts.tolist(), rows]
    lengths = [bounds[n + 1] - bounds[n] for n in range(segments)]
    sorted_segments = [
        part[:, lexical(part)] for part in np.split(words, cuts, axis=1) if part.size
    ]
    words = np.hstack([words[:, :0], *sorted_segments])
    # Rows with equal words keep the order of their segments, as a stable sort has it.
    assert np.array_equal(merge_segments(words, lengths), lexical(words))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 4),
    st.sampled_from([1, 7, 60, 3_000, 30_000]),
    st.sampled_from([0, 8, 40, 62]),
    st.integers(1, 12),
)
def test_merge_segments_of_two_words_in_one(
    seed: int, width: int, rows: int, bits: int, segments: int
) -> None:
    """First words that differ in their last bits only, over all integers; second ones as times."""
    random = np.random.default_rng(seed)
    far = random.integers(-(2**62), 2**62, 5) * 2
    words = random.integers(0, 3, (width, rows))
    words[0] += far[random.integers(0, far.size, rows)]
    words[1] = random.integers(-(2**bits), 2**bits, rows)
    owner = np.sort(random.integers(0, segments, rows))
    words = words[:, np.lexsort([*words[::-1], owner])]
    lengths = np.bincount(owner, minlength=segments).tolist()
    assert np.array_equal(merge_segments(words, lengths), lexical(words))
    words = words[:, random.permutation(rows)]
    assert np.array_equal(words[:, sort_words(words)], words[:, lexical(words)])


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [0] * 40, [3], [0, 3, 0], [0, 0, 3]])
def test_merge_segments_that_are_empty(lengths: list[int]) -> None:
    words = np.zeros((2, sum(lengths)), np.int64)
    assert np.array_equal(merge_segments(words, lengths), np.arange(sum(lengths)))


def test_sort_no_words() -> None:
    assert sort_words(np.zeros((3, 0), np.int64)).size == 0


@given(INT64, st.integers(0, 2**64 - 1))
def test_the_hash_of_a_long_can_be_undone(value: int, seed: int) -> None:
    digest = hash_long(value, seed)
    data = value.to_bytes(8, "little", signed=True)
    assert digest == xxhash.xxh64_intdigest(data, seed)
    assert unhash_long(digest, seed) == value


@given(INT64, INT64, INT64)
def test_collisions_are_genuine(a: int, b: int, c: int) -> None:
    row = (a, b)
    other = colliding_row((c,), row)
    columns = [pa.array(values, pa.int64()) for values in zip(row, other, strict=True)]
    assert chain(row, SEED) == chain(other, SEED)
    assert len(set(hash_keys(columns))) == len(set(hash_rows(columns))) == 1
    assert (row == other) == (a == c)


def colliding_rows(count: int, row: tuple[int, ...] = (0, 0)) -> list[tuple[int, ...]]:
    """Different rows with one hash: `row`, and others that begin with something else."""
    return [row, *(colliding_row((row[0] + n, *row[1:-1]), row) for n in range(1, count))]


@settings(max_examples=150)
@given(st.data())
def test_colliding_rows_are_told_apart(data: st.DataObject) -> None:
    # Three families of rows with one hash each, and times that tie.
    domain = [row for start in (0, 100, 200) for row in colliding_rows(4, (start, 7))]
    update = st.tuples(st.sampled_from(domain), st.integers(0, 1), st.sampled_from([1, -1, 2]))
    updates = data.draw(st.lists(update, max_size=40))
    columns = [pa.array([row[n] for row, _, _ in updates], pa.int64()) for n in range(2)]
    times = np.array([time for _, time, _ in updates], np.int64)
    diffs = np.array([diff for _, _, diff in updates], np.int64)
    words = np.vstack([hash_rows(columns), times])
    assert len(set(words[0])) <= 3
    order = sort_words(words)
    found = consolidate_sorted(words, order, diffs, columns)
    expected: Counter[Any] = Counter()
    for row, time, diff in updates:
        expected[row, time] += diff
    expected = Counter({key: count for key, count in expected.items() if count})
    rows = [updates[row][:2] for row in found.rows]
    assert dict(zip(rows, found.diffs.tolist(), strict=True)) == expected
    assert len(rows) == len(expected)
    kept = words[:, found.rows]
    assert np.array_equal(kept, kept[:, lexical(kept)])
    # In any order of the rows, and then in that of their first appearance.
    unsorted = consolidate_unsorted(words, diffs, columns)
    rows = [updates[row][:2] for row in unsorted.rows]
    assert dict(zip(rows, unsorted.diffs.tolist(), strict=True)) == expected
    assert rows == [key for key in dict.fromkeys(u[:2] for u in updates) if key in expected]


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=40))
def test_rows_with_equal_words_alone_are_not_equal(rows: list[tuple[int, str]]) -> None:
    """Words that say nothing at all: everything depends on the values."""
    columns = [
        pa.array([n for n, _ in rows], pa.int64()),
        pa.array([s for _, s in rows], pa.string()),
    ]
    words = np.zeros((1, len(rows)), np.int64)
    found = consolidate_sorted(words, np.arange(len(rows)), np.ones(len(rows), np.int64), columns)
    counts = {rows[row]: diff for row, diff in zip(found.rows, found.diffs.tolist(), strict=True)}
    assert counts == Counter(rows)
    # By first appearance, each represented by its first row.
    assert found.rows.tolist() == sorted(rows.index(row) for row in set(rows))
    again = consolidate_unsorted(words, np.ones(len(rows), np.int64), columns)
    assert again.rows.tolist() == found.rows.tolist()
    assert again.diffs.tolist() == found.diffs.tolist()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), INT64), max_size=20))
def test_multiplicities_beyond_64_bits_are_spread_over_several(
    updates: list[tuple[int, int]],
) -> None:
    columns = [pa.array([n for n, _ in updates], pa.int64())]
    diffs = np.array([diff for _, diff in updates], np.int64)
    words = hash_rows(columns)[None, :]
    found = consolidate_unsorted(words, diffs, columns)
    counts: Counter[int] = Counter()
    for row, diff in zip(found.rows.tolist(), found.diffs.tolist(), strict=True):
        counts[updates[row][0]] += diff
    expected: Counter[int] = Counter()
    for n, diff in updates:
        expected[n] += diff
    assert {n: c for n, c in counts.items() if c} == {n: c for n, c in expected.items() if c}
    assert 0 not in found.diffs


def test_colliding_rows_do_not_overflow_together() -> None:
    most = 2**63 - 1
    rows = colliding_rows(2)
    columns = [pa.array([row[n] for row in rows], pa.int64()) for n in range(2)]
    words = hash_rows(columns)[None, :]
    diffs = np.array([most, most])
    assert consolidate_sorted(words, np.arange(2), diffs, columns).diffs.tolist() == [most, most]
    twice = np.array([0, 0, 1])
    with pytest.raises(DataError, match="exceeds 64 bits"):
        consolidate_sorted(
            words[:, twice], np.arange(3), diffs[twice], [c.take(pa.array(twice)) for c in columns]
        )


SCHEMA = pa.schema([(name, pa.int64()) for name in ("k1", "k2", "v1", "v2")])
*KEYS, ABSENT = [*colliding_rows(3, (50, 2)), *colliding_rows(5, (1, 1))]


def rows_of(key: tuple[int, ...]) -> list[dict[str, int]]:
    """Some rows of a key. All rows of all keys have one hash."""
    rows = [colliding_row((*key, n), (*KEYS[0], 0, 0)) for n in range(3)]
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]


def batches() -> list[list[tuple[dict[str, int], int, int]]]:
    """Updates of every key, time by time: rows that appear, repeat and disappear."""
    random = np.random.default_rng(5)
    rows = [row for key in KEYS for row in rows_of(key)]
    found = []
    for time in range(4):
        picks = random.integers(0, len(rows), 30).tolist()
        diffs = random.choice([1, 1, 2, -1], len(picks)).tolist()
        found.append([(rows[pick], time, diff) for pick, diff in zip(picks, diffs, strict=True)])
    # Of these two rows with one hash one goes again, and the other stays.
    found[0] += [(rows[0], 0, 9), (rows[1], 0, 9)]
    found[3] += [(rows[0], 3, -9)]
    return found


def colliding_shard(folder: Path, order: Order) -> tuple[Shard, Oracle]:
    shard = Shard.create(folder / "shard", SCHEMA, key=["k1", "k2"], order=order)
    oracle = Oracle(SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "ROW_GROUP_ROWS", 4)  # parts that begin amid equal hashes
        for time, rows in enumerate(batches()):
            shard.append(to_table(rows, SCHEMA), lower=time, upper=time + 1, part_bytes=1)
            oracle.append(rows)
    return shard, oracle


def key_of(row: dict[str, int]) -> tuple[int, int]:
    return row["k1"], row["k2"]


def key_columns(keys: list[tuple[int, ...]]) -> dict[str, list[int]]:
    return {"k1": [key[0] for key in keys], "k2": [key[1] for key in keys]}


ORDERS = [by_hash(), by_hash("v1"), by_columns("v1"), by_columns("k1", "v2")]


def test_keys_and_rows_of_the_shard_collide() -> None:
    rows = [row for key in KEYS for row in rows_of(key)]
    columns = [pa.array([row[name] for row in rows], pa.int64()) for name in SCHEMA.names]
    assert len(set(hash_keys(columns[:2]))) == 2
    assert len(set(hash_rows(columns))) == 1
    assert len({tuple(row.values()) for row in rows}) == len(rows) == 21
    assert chain(ABSENT) == chain(KEYS[-1])


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_collisions_mix_nothing_in_local_reads(tmp_path: Path, order: Order) -> None:
    shard, oracle = colliding_shard(tmp_path, order)
    for compacted in (False, True):
        if compacted:
            shard.compact(everything=True)
        for level in Consolidation:
            for as_of in range(4):
                found = shard.snapshot(as_of, consolidate=level).to_table()
                assert count_updates(found, with_time=False) == oracle.snapshot(as_of)
                if level is Consolidation.FULL:
                    assert found.num_rows == len(oracle.snapshot(as_of))
            found = shard.changes(1, 4, consolidate=level).to_table()
            assert count_updates(found, with_time=True) == oracle.changes(1, 4)
        for key in [*KEYS, ABSENT]:
            found = shard.snapshot(keys=key_columns([key])).to_table()
            expected = oracle.snapshot(3, lambda row, key=key: key_of(row) == key)
            assert count_updates(found, with_time=False) == expected
            assert bool(expected) == (key != ABSENT)
        some = [KEYS[0], ABSENT, KEYS[2], KEYS[4]]
        found = shard.changes(0, keys=key_columns(some)).to_table()
        expected = oracle.changes(0, 4, lambda row, some=some: key_of(row) in some)
        assert count_updates(found, with_time=True) == expected


@pytest.mark.parametrize("order", [by_hash(), by_columns("v1")], ids=str)
def test_collisions_mix_nothing_in_spark(spark: Any, tmp_path: Path, order: Order) -> None:
    shard, oracle = colliding_shard(tmp_path, order)
    read = shard.snapshot()
    found = read.dataframe(spark, slices=3).toArrow()
    assert count_updates(found, with_time=False) == oracle.snapshot(3)
    assert found.num_rows == len(oracle.snapshot(3))
    some = [KEYS[0], ABSENT, KEYS[2], KEYS[4]]
    expected = oracle.snapshot(3, lambda row: key_of(row) in some)
    found = shard.snapshot(keys=key_columns(some)).dataframe(spark, slices=2).toArrow()
    assert count_updates(found, with_time=False) == expected
    keys = spark.createDataFrame(pa.table(key_columns([*some, KEYS[0]])))
    found = read.lookup(keys, slices=3).toArrow()
    assert count_updates(found, with_time=False) == expected
    assert found.num_rows == len(expected)


def test_collisions_mix_nothing_through_an_exchange(spark: Any, tmp_path: Path) -> None:
    shard = Shard.create(tmp_path / "shard", SCHEMA, key=["k1", "k2"])
    oracle = Oracle(SCHEMA)
    rows = [update for batch in batches() for update in batch]
    frame = spark.createDataFrame(to_table(rows, SCHEMA))
    shard.append(frame, lower=0, upper=4, exchange=3)
    oracle.append(rows)
    assert shard.stats().runs == 1
    found = shard.changes(0).to_table()
    assert count_updates(found, with_time=True) == oracle.changes(0, 4)
    assert found.num_rows == len(oracle.changes(0, 4))
