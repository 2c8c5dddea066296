"""Advice on the size of groups, and estimates from samples, on made-up figures."""

from __future__ import annotations

import numpy as np
import pytest

from windrow.views.costs.advice import Level, advise, levels_for
from windrow.views.costs.distinct import extrapolated, remaining
from windrow.views.costs.ticks import last_runs


def stack(groups: int, size: int, expected: int) -> list[Level]:
    """The levels that groups of one size have, as document 002 lays them out."""
    count = levels_for(expected)
    kept = [size, *(min(16**n, size) for n in range(count - 1, 0, -1))]
    return [Level(f"level {n}", groups * rows) for n, rows in enumerate(kept)]


@pytest.mark.parametrize("size", [3, 100, 256, 5_000, 1_000_000])
def test_advice_leaves_the_levels_that_groups_need(size: int) -> None:
    found = advise(stack(10, size, 4_000_000_000))
    assert found is not None
    better = stack(10, size, found.expected_group_size)
    assert found.better == len(better) <= levels_for(size)
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
