"""Slices dealt out to tasks: each once, and evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.features.strategies.merge import dealt


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4), st.sets(st.integers(0, 59)))
def test_each_slice_that_is_not_finished_is_in_one_share(
    slices: int, tasks: int, each: int, finished: set[int]
) -> None:
    shares = dealt(slices, tasks, tasks * each, finished)
    assert all(shares)
    found = [number for share in shares for number in share]
    assert found == [number for number in range(slices) if number not in finished]


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 4))
def test_tasks_get_shares_that_are_as_many_and_as_large(slices: int, tasks: int, each: int) -> None:
    sizes = [len(share) for share in dealt(slices, tasks, tasks * each)]
    assert len(sizes) <= tasks * each
    assert len(sizes) % tasks == 0 or len(sizes) == slices
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
