"""Plans of reads: where the order is cut, and which parts each slice reads."""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow import Shard, col
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.shard.part import Part, PartName
from windrow.shard.plan import _rows_at, even_cuts, slices_between
from windrow.shard.scan import START

PREFIXES = st.one_of(
    st.integers(LOWEST, HIGHEST),
    st.integers(-5, 5),
    st.integers(HIGHEST - 5, HIGHEST),
    st.integers(LOWEST, LOWEST + 5),
)


def part(number: int, prefix: tuple[int, int], rows: int = 100, run: str = "r") -> Part:
    name = PartName(0, 1, run, number, "n", "c", 0)
    return Part(f"part-{number}", name, rows, 1, prefix, (0, 0))


@st.composite
def some_parts(draw: st.DrawFn) -> list[Part]:
    spans = draw(st.lists(st.tuples(PREFIXES, PREFIXES), min_size=1, max_size=12))
    rows = st.one_of(st.integers(1, 10), st.integers(10**6, 10**8))
    return [
        part(number, (min(span), max(span)), draw(rows), draw(st.sampled_from("abc")))
        for number, span in enumerate(spans)
    ]


def rows_before(parts: list[Part], edge: int, also_at: bool) -> Fraction:
    found = Fraction(0)
    for one in parts:
        low, high = one.prefix
        if low == high:
            found += one.rows * (low < edge or (also_at and low == edge))
        else:
            found += one.rows * min(max(Fraction(edge - low, high - low), Fraction(0)), Fraction(1))
    return found


@given(some_parts())
def test_rows_below_an_edge_are_as_counted_one_by_one(parts: list[Part]) -> None:
    edges = np.unique(np.array([bound for one in parts for bound in one.prefix], np.int64))
    total = sum(one.rows for one in parts)
    for found, also_at in zip(_rows_at(parts, edges), (False, True), strict=True):
        expected = [float(rows_before(parts, edge, also_at)) for edge in edges.tolist()]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * total)


@given(some_parts(), st.integers(1, 20))
def test_cuts_ascend_within_the_order(parts: list[Part], slices: int) -> None:
    cuts = even_cuts(parts, slices, None)
    assert cuts == sorted(set(cuts))
    assert all(LOWEST <= prefix < HIGHEST for prefix, _ in cuts)


def test_parts_too_narrow_for_floats_are_cut_evenly() -> None:
    high = 2**62  # the next float is 512 away
    parts = [part(n, (high + 10 * n, high + 10 * n + 9)) for n in range(8)]
    cuts = even_cuts(parts, 4, None)
    shares = [sum(one.rows for one in s.parts) for s in slices_between(parts, cuts)]
    assert len(cuts) == 3
    assert max(shares) <= 400


@given(some_parts(), st.lists(st.tuples(PREFIXES, st.sampled_from([LOWEST, -1, 7])), max_size=6))
def test_a_slice_has_the_parts_that_overlap_it(
    parts: list[Part], bounds: list[tuple[int, int]]
) -> None:
    cuts = sorted(set(bounds))
    slices = slices_between(parts, cuts)
    assert [(s.start, s.end) for s in slices] == list(itertools.pairwise([START, *cuts, None]))
    for found in slices:
        start, end = found.start, found.end
        expected = {
            one.path
            for one in parts
            if one.prefix[1] >= start[0] and (end is None or (one.prefix[0], LOWEST) < end)
        }
        assert {one.path for one in found.parts} == expected
        assert len(found.parts) == len(expected)
        for run in found.runs:
            assert len({one.name.run for one in run}) == 1
            assert list(run) == sorted(run, key=lambda one: one.order)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    schema = pa.schema([("k", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    shard = Shard.create(tmp_path / "s", schema, key=["k"])
    for step in range(3):
        rows = [{"k": step, "s": None if step == 1 else "x", "at": step}]
        shard.append(pa.Table.from_pylist(rows, schema=schema), lower=step, upper=step + 1)
    return shard


def test_parts_are_kept_from_version_to_version(shard: Shard) -> None:
    before = {one.path: one for one in shard.parts()}
    row = [{"k": 9, "s": "y", "at": 0}]
    shard.append(pa.Table.from_pylist(row, schema=shard.schema), lower=3, upper=4)
    after = {one.path: one for one in shard.parts()}
    assert len(after) == 4
    assert all(after[path] is one for path, one in before.items())
    shard.compact(everything=True)
    (only,) = shard.parts()
    assert only.path not in after
    assert (only.bounds["k"].low, only.bounds["k"].high, only.bounds["s"].nulls) == (0, 9, 1)


def test_bounds_of_a_part_are_read_when_asked_for_and_travel_with_it(shard: Shard) -> None:
    for one in shard.parts():
        assert list(one.bounds) == ["k", "s", "at"]
        assert one.bounds.get("other") is None
        copy = pickle.loads(pickle.dumps(one))
        assert type(copy.bounds) is dict
        assert copy == one
        assert copy.bounds == dict(one.bounds)
    lows = [one.bounds["s"].low for one in shard.parts()]
    assert sorted(lows, key=str) == [None, "x", "x"]
    read = shard.snapshot(where=col("k") == 2)
    assert read.to_table().column("k").to_pylist() == [2]
    assert read.counters.parts_skipped == 2
