"""Histories of a table that changes, and the naive truth: replay them for each query."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from feature_cases import BUCKET, COLUMNS, times
from oracle import canonical

Update = tuple[int, dict[str, Any], int]  # time, row, diff


def alive(history: list[Update], query: int) -> list[dict[str, Any]]:
    """The rows of a table after all changes strictly before `query`: the naive truth."""
    counts: Counter[Any] = Counter()
    rows: dict[Any, dict[str, Any]] = {}
    for time, row, diff in history:
        if time < query:
            key = tuple((name, canonical(value)) for name, value in sorted(row.items()))
            counts[key] += diff
            rows[key] = row
    return [rows[key] for key, count in counts.items() for _ in range(count)]


def image(draw: st.DrawFn, column: str) -> dict[str, Any]:
    return {
        "k": draw(st.sampled_from([1, 2, None])),
        "time": draw(times()),
        column: draw(st.none() | st.sampled_from(COLUMNS[column][1])),
        "bucket": draw(st.sampled_from(BUCKET)),
    }


@st.composite
def histories(draw: st.DrawFn, column: str) -> list[Update]:
    """Inserts, updates (of values, times, keys), deletes and re-inserts, some at one time."""
    changed = sorted(draw(st.lists(times(), max_size=14)))
    there: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    history: list[Update] = []
    for time in changed:
        kind = draw(st.sampled_from(["insert", "insert", "update", "delete", "again"]))
        if kind == "again" and gone:
            row = gone.pop()
        elif kind == "insert" or not there:
            row = image(draw, column)
        else:
            at = draw(st.integers(0, len(there) - 1))
            old = there.pop(at)
            gone.append(old)
            history.append((time, old, -1))
            if kind == "delete":
                continue
            changed = draw(st.sampled_from(["k", "time", column, "bucket"]))
            row = {**old, changed: image(draw, column)[changed]}
        there.append(row)
        history.append((time, row, 1))
    return list(draw(st.permutations(history)))  # late mutations: any order of arrival


def queries() -> st.SearchStrategy[list[dict[str, Any]]]:
    key = st.sampled_from([1, 2, 3, None])
    return st.lists(st.fixed_dictionaries({"k": key, "time": st.none() | times()}), max_size=8)
