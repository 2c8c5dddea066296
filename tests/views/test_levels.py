"""Levels of candidates: against the least and largest of all values, and by their sizes."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import DataError
from windrow.updates import DIFF
from windrow.views.plan.hints import GroupSize
from windrow.views.run.extremes import Leveled
from windrow.views.run.levels import Level
from windrow.views.run.task import Arranged
from windrow.views.run.weighted import Groups, Weighted, concatenated, distinct, number_rows

KEYS = [None, 1, 2]
FLOATS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -1.5]


class Memory:
    """Stands for a task: what levels keep is in memory."""

    def __init__(self) -> None:
        self.run = SimpleNamespace(fill=False, lower=1)
        self.stored: dict[str, Weighted] = {}
        self.written: list[tuple[Arranged, Weighted]] = []
        self.looked_up = 0

    def old(self, arranged: Arranged, keys: pa.Table) -> Weighted:
        all_ = self.stored.get(arranged.collection, Weighted.empty(arranged.schema))
        if not all_.size or not keys.num_rows:
            return Weighted.empty(arranged.schema)
        (rows, wanted), _ = number_rows([all_.rows.select(list(arranged.key)), keys])
        found = all_.take(np.flatnonzero(np.isin(rows, wanted)))
        self.looked_up += found.size
        return found

    def write(self, arranged: Arranged, delta: Weighted) -> None:
        self.written.append((arranged, delta))

    def commit(self) -> None:
        for arranged, delta in self.written:
            old = self.stored.get(arranged.collection, Weighted.empty(arranged.schema))
            self.stored[arranged.collection] = concatenated([old, delta]).consolidated()
        self.written.clear()

    def sizes(self) -> dict[str, int]:
        return {name: one.size for name, one in self.stored.items()}


class Grouped:
    """Values of groups in levels, and beside them as plain counts."""

    def __init__(self, type_: pa.DataType, levels: int, sides: tuple[bool, ...]) -> None:
        schema = pa.schema([("k", pa.int64()), ("subgroup", pa.int64()), ("v", type_)])
        found = []
        for i in range(1, levels + 1):
            rows = Arranged(f"in {i}", ("k", "subgroup"), schema, True)
            rejected = Arranged(f"out {i}", ("k", "subgroup"), schema, True)
            found.append(Level(rows, rejected if i < levels else None))
        self.plan, self.type, self.sides = Leveled(tuple(found), sides), type_, sides
        self.task = Memory()
        self.counts: Counter[tuple[Any, Any]] = Counter()
        self.best: dict[tuple[bool, Any], Any] = {}

    def change(self, changes: Counter[tuple[Any, Any]]) -> None:
        rows = pa.table(
            {
                "k": pa.array([k for k, _ in changes], pa.int64()),
                "v": pa.array([v for _, v in changes], self.type),
                DIFF: pa.array(list(changes.values()), pa.int64()),
            }
        )
        values = Weighted.of(rows).consolidated()
        groups = Groups(distinct(values.rows.select(["k"])))
        task: Any = self.task
        updated = self.plan.updated(task, values, groups)
        keys = groups.keys.column(0).to_pylist()
        for largest in self.sides:
            was = pa.array([self.best.get((largest, key)) for key in keys], self.type)
            new = updated.best(largest, was).to_pylist()
            self.best |= {(largest, key): value for key, value in zip(keys, new, strict=True)}
        self.task.commit()
        for row, diff in changes.items():
            self.counts[row] += diff

    def check(self) -> None:
        for (largest, key), found in self.best.items():
            values = [v for (k, v), n in self.counts.items() if k == key and n > 0]
            best = (max if largest else min)(values, key=order, default=None)
            assert order(found) == order(best), (largest, key)
        sizes = self.task.sizes()
        levels = len(self.plan.levels)
        for i in range(1, levels):  # what comes in goes on, or is rejected
            assert sizes[f"in {i}"] == sizes.get(f"in {i + 1}", 0) + sizes.get(f"out {i}", 0)


def order(value: Any) -> Any:
    """Spark's order: NaN is the largest, and zero has no sign."""
    if value is None:
        return None
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value + 0.0)
    return value


@pytest.mark.parametrize("levels", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["ints", "floats", "texts"])
def test_the_best_of_all_values(levels: int, kind: str) -> None:
    type_, draw = {
        "ints": (pa.int64(), lambda r: r.randrange(200)),
        "floats": (pa.float64(), lambda r: r.choice([*FLOATS, float(r.randrange(50))])),
        "texts": (pa.string(), lambda r: "x" * r.randrange(3) + str(r.randrange(60))),
    }[kind]
    rng = random.Random(f"{levels} {kind}")
    found = Grouped(type_, levels, (False, True))
    for _ in range(30):
        changes: Counter[tuple[Any, Any]] = Counter()
        for _ in range(rng.choice([1, 3, 30])):
            changes[(rng.choice(KEYS), draw(rng))] += rng.choice([1, 1, 2])
        there = [row for row, n in found.counts.items() for _ in range(n)]
        for row in rng.sample(there, min(len(there), rng.choice([0, 1, 5, 40]))):
            changes[row] -= 1
        extremes = [(k, v) for (_, k), v in found.best.items() if v is not None]
        for row in rng.sample(extremes, min(len(extremes), rng.choice([0, 2]))):
            if found.counts[row] + changes[row] > 0:
                changes[row] = -found.counts[row]  # the extreme goes, all of its copies
        found.change(Counter({row: n for row, n in changes.items() if n}))
        found.check()
    gone = Counter({row: -n for row, n in found.counts.items() if n})
    found.change(gone)
    found.check()
    assert not any(found.task.sizes().values())  # nothing is left of what is gone
    found.change(Counter({(1, draw(rng)): 1}))
    found.check()


ROWS = st.tuples(st.sampled_from(KEYS), st.integers(0, 40), st.integers(-3, 3))


@given(st.lists(st.lists(ROWS, max_size=12), max_size=8), st.integers(1, 3))
def test_any_history(steps: list[list[tuple[Any, int, int]]], levels: int) -> None:
    found = Grouped(pa.int64(), levels, (False, True))
    for step in steps:
        changes: Counter[tuple[Any, Any]] = Counter()
        for key, value, copies in step:
            there = found.counts[key, value] + changes[key, value]
            changes[key, value] += max(copies, -there)
        changes = Counter({row: n for row, n in changes.items() if n})
        if changes:
            found.change(changes)
            found.check()


@pytest.mark.parametrize("largest", [False, True])
def test_the_extreme_is_retracted_at_every_level(largest: bool) -> None:
    found = Grouped(pa.int64(), GroupSize(5_000).levels, (largest,))
    found.change(Counter({(1, v): 1 for v in range(5_000)}))
    for step in range(60):
        best = found.best[largest, 1]
        assert best == (4_999 - step if largest else step)
        found.task.looked_up = 0
        found.change(Counter({(1, best): -1}))
        assert found.task.looked_up < 400  # of 5,000, at four levels
        found.check()


def test_what_does_not_change_the_set_stops_at_the_first_level() -> None:
    found = Grouped(pa.int64(), 3, (False,))
    found.change(Counter({(1, v): 1 for v in range(1_000)}))
    before = found.task.sizes()
    found.task.looked_up = 0
    found.change(Counter({(1, 0): 5, (1, 500): 1}))
    assert found.task.sizes() == before
    assert found.task.looked_up < 100
    found.check()


@pytest.mark.parametrize("group", [250, 4_000])
def test_sizes_are_those_of_the_formulas(group: int) -> None:
    """With a good hint a little more than twice the distinct rows; with a bad one over thrice.

    Good is one whose levels are just enough: of groups a little below a power of 16.
    """

    def records(size: int) -> float:
        found = Grouped(pa.int64(), GroupSize(size).levels, (False,))
        rows = Counter({(k, v * 7): 1 for k in (1, 2, None) for v in range(group)})
        found.change(rows)
        found.check()
        sizes = found.task.sizes()
        assert sizes["in 1"] == len(rows)
        return (sum(sizes.values()) + 3) / len(rows)  # and the best of three groups

    assert 2 <= records(group) <= 2.1
    assert records(group * 1_000) > 3
    assert records(GroupSize().rows) > 3


def test_a_value_that_is_not_there_cannot_go() -> None:
    found = Grouped(pa.int64(), 2, (True,))
    found.change(Counter({(1, 1): 1}))
    with pytest.raises(DataError, match="not there"):
        found.change(Counter({(1, 2): -1}))
