"""Advice on the size of groups, and estimates from samples, on made-up figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pytest

from windrow.views.costs.advice import Level, advise
from windrow.views.costs.catalogue import (
    Line,
    bytes_shared,
    estimate_error,
    keeps,
    kept_of,
    level_advice,
)
from windrow.views.costs.distinct import extrapolated, remaining
from windrow.views.costs.estimates import Estimate
from windrow.views.costs.measured import Measured
from windrow.views.costs.ticks import OUTPUT, last_runs
from windrow.views.plan.hints import GroupSize
from windrow.views.plan.nodes import Arrangement, Node, ViewPlan
from windrow.views.relations.names import Relation


def stack(groups: int, size: int, expected: int) -> list[Level]:
    """The levels that groups of one size have, as document 002 lays them out."""
    count = GroupSize(expected).levels
    kept = [size, *(min(16**n, size) for n in range(count - 1, 0, -1))]
    return [Level(f"level {n}", groups * rows) for n, rows in enumerate(kept)]


@pytest.mark.parametrize("size", [3, 100, 256, 5_000, 1_000_000])
def test_advice_leaves_the_levels_that_groups_need(size: int) -> None:
    found = advise(stack(10, size, 4_000_000_000))
    assert found is not None
    better = stack(10, size, found.expected_group_size)
    assert found.better == len(better) <= GroupSize(size).levels
    now = sum(level.records for level in stack(10, size, 4_000_000_000))
    assert now - found.saves == sum(level.records for level in better)


def test_good_stacks_are_left_alone() -> None:
    found = advise(stack(10, 4_000, 4_096))
    assert found is not None
    assert (found.saves, found.better) == (0, found.levels)
    assert "each of which" in str(found)
    assert advise(stack(10, 10, 16)) is None
    assert advise([Level("a", 0), Level("b", 0)]) is None


def test_advice_says_what_it_saves() -> None:
    found = advise([Level("all", 1_000), Level("a", 1_000), Level("b", 160)])
    assert str(found) == (
        "EXPECTED_GROUP_SIZE(256) would save 1,000 records: 1 of 3 levels holds nearly as many as "
        "the level below it"
    )


@pytest.mark.parametrize("each", [1, 2, 4, 50])
def test_distinct_values_of_a_sample(each: int) -> None:
    rng = np.random.default_rng(each)
    values = np.repeat(np.arange(20_000 // each), each)
    sample = values[rng.random(values.size) < 0.1]
    counts = np.bincount(sample)
    found = extrapolated((counts > 0).sum(), (counts == 1).sum(), sample.size, 0.1)
    assert found == pytest.approx(20_000 // each, rel=0.1)


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.7, 1.0])
def test_distinct_values_that_remain(kept: float) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2_000, 10_000)
    left = np.unique(values[rng.random(values.size) < kept]).size
    before = np.unique(values).size
    assert remaining(before, values.size, kept) == pytest.approx(left, rel=0.1, abs=1)


def test_runs_end_with_the_fill_and_with_a_drop() -> None:
    def note(version: int, **more: object) -> dict[str, object]:
        about = {"seconds": 1.0, "operators": [[0, version, 0, 0, 0, 0, 0.0]]}
        return {"version": version, "time": version, "operators": {"v": about}, **more}

    notes = [note(9), note(8, view="v"), note(7)]
    found = last_runs(notes, ["v", "w"], 5)
    assert [(run.version, run.fill) for run in found["v"]] == [(9, False), (8, True)]
    assert found["w"] == []
    assert len(last_runs([note(9), note(8)], ["v"], 1)["v"]) == 1
    dropped = {"version": 8, "time": 8, "dropped": "v"}
    assert [run.version for run in last_runs([note(9), dropped, note(7)], ["v"], 5)["v"]] == [9]


@dataclass(frozen=True)
class Stacked(Node):
    """An operator with a stack of levels."""

    levels: tuple[Arrangement, ...]

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return self.levels

    @property
    def stacks(self) -> tuple[tuple[Arrangement, ...], ...]:
        return (self.levels,)


def test_advice_is_told_with_the_first_level() -> None:
    def kept(name: str) -> Arrangement:
        return Arrangement(name, ("k",), pa.schema([("k", pa.int64())]), name, ())

    plan = ViewPlan(Stacked("id", None, (), tuple(map(kept, "abc"))), kept("rows"))
    places = {name: f"collection of {name}" for name in ("a", "b", "c", "rows")}
    definition = {"kind": "view", "keeps": list(keeps(plan, places, {"a": Estimate(1.6, 1)}))}
    found = kept_of(Relation("v", json.loads(json.dumps(definition))))
    assert [(one.operator, one.level, one.records) for one in found] == [
        (0, (0, 0), 2),
        (0, (0, 1), None),
        (0, (0, 2), None),
        (OUTPUT, None, None),
    ]
    records = {"a": 1_000, "b": 1_000, "c": 160, "rows": 10}
    sizes = {
        places[name]: Measured(count, True, None, 0, 1, count, 0) for name, count in records.items()
    }
    advice = [level_advice(one, found, sizes) for one in found]
    assert advice[1:] == [None, None, None]
    assert advice[0] is not None
    assert advice[0].startswith("EXPECTED_GROUP_SIZE(256) would save 1,000 records")


def test_half_of_the_estimates_are_nearer_than_the_median() -> None:
    def line(collection: str, estimate: int | None, records: int, **more: object) -> Line:
        values = dict.fromkeys(field.name for field in fields(Line))
        known = {"number": 0, "exact": True, "bytes": 10, "view": "v", **more}
        given = {"collection": collection, "estimate": estimate, "records": records}
        return Line(**{**values, **known, **given})  # type: ignore[arg-type]

    lines = [line("a", 10, 10), line("b", 15, 10), line("c", 0, 0), line("d", None, 5)]
    others = [line("e", 90, 1, number=OUTPUT), line("f", 90, 1, exact=False)]
    assert estimate_error([*lines, *others]) == 0.0
    assert estimate_error([lines[1]]) == 0.5
    assert estimate_error([]) is None
    assert bytes_shared([*lines, line("a", 10, 10, view="w")]) == (40, 50)
