"""Joins inside a task: from changes of both sides to changes of the output.

Rows of both sides meet by the number of their key (see `number_rows`); a key that contains NULL
meets nothing and has a negative number. `old` means before the tick, `new` after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.views.run.weighted import (
    Weighted,
    chunks,
    concatenated,
    number_rows,
    pairs,
    take,
)

PAIRS = 262_144  # joined rows that are put together at a time

INNER, LEFT, FULL, SEMI, ANTI, EXISTENCE, SINGLE = (
    "inner",
    "left outer",
    "full outer",
    "left semi",
    "left anti",
    "existence",
    "left single",
)
TOO_MANY = (
    "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression"
)


@dataclass(frozen=True)
class Side:
    """Distinct rows of one side: their key's number, and their weights before and after."""

    rows: pa.Table
    keys: np.ndarray
    old: np.ndarray
    new: np.ndarray

    @property
    def changed(self) -> np.ndarray:
        found: np.ndarray = self.old != self.new
        return found

    def totals(self, keys: int, weights: np.ndarray) -> np.ndarray:
        """The sum of weights for each key, and a last zero: that of keys with a negative number."""
        known = self.keys >= 0
        sums = np.zeros(keys + 1, np.int64)
        np.add.at(sums, self.keys[known], weights[known])
        return sums


@dataclass(frozen=True)
class Output:
    """Output rows as positions of the two sides; -1 stands for a row of NULLs."""

    left: np.ndarray
    right: np.ndarray
    weights: np.ndarray
    flags: np.ndarray | None = None  # of an existence join


def key_numbers(tables: list[pa.Table]) -> tuple[list[np.ndarray], int]:
    """Numbers of keys over several tables of key columns; -1 where a key contains NULL."""
    numbers, count = number_rows(tables)
    for table, found in zip(tables, numbers, strict=True):
        for column in table.columns:
            if column.null_count:
                found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return numbers, count


def side_of(old: Weighted, delta: Weighted) -> Side:
    """The rows that a side had or has, among what was looked up. Keys are numbered later."""
    both = concatenated([old, delta])
    (groups,), count = number_rows([both.rows])
    before, after = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(before, groups[: old.size], old.weights)
    np.add.at(after, groups, both.weights)
    _, first = np.unique(groups, return_index=True)
    return Side(take(both.rows, first), np.zeros(0, np.int64), before, after)


def with_keys(
    left: Side, right: Side, keys: tuple[tuple[str, ...], tuple[str, ...]]
) -> tuple[Side, Side, int]:
    """Both sides with the numbers of their keys, and how many there are."""
    tables = [left.rows.select(list(keys[0])), right.rows.select(list(keys[1]))]
    (a, b), count = key_numbers(tables)
    return replace(left, keys=a), replace(right, keys=b), count


def inner_pairs(
    left_delta: Weighted,
    right_delta: Weighted,
    left_old: Weighted,
    right_old: Weighted,
    keys: tuple[tuple[str, ...], tuple[str, ...]],
) -> Iterator[tuple[pa.Table, pa.Table, np.ndarray]]:
    """Changes of an inner join: the change of each side with the other, never both sides whole.

    The left change meets the right side as it was and its change; the right change meets the left
    side as it was. Yields joined rows of the left, of the right, and their weights.
    """
    tables = [
        one.rows.select(list(keys[side]))
        for one, side in ((left_delta, 0), (left_old, 0), (right_delta, 1), (right_old, 1))
    ]
    (dl, lo, dr, ro), _ = key_numbers(tables)
    for left, left_keys, right, right_keys in (
        (left_delta, dl, right_old, ro),
        (left_delta, dl, right_delta, dr),
        (left_old, lo, right_delta, dr),
    ):
        if not left.size or not right.size:
            continue
        rows, others = pairs(left_keys, right_keys)
        for start in range(0, rows.size, PAIRS):
            at, to = rows[start : start + PAIRS], others[start : start + PAIRS]
            yield take(left.rows, at), take(right.rows, to), left.weights[at] * right.weights[to]


def joined(kind: str, left: Side, right: Side, keys: int) -> list[Output]:
    """Changes of a join other than inner, whose condition is the equality of keys alone."""
    changed_left, changed_right = np.flatnonzero(left.changed), np.flatnonzero(right.changed)
    matches_old = right.totals(keys, right.old)[left.keys]
    matches_new = right.totals(keys, right.new)[left.keys]
    out = []
    if kind in (LEFT, FULL, SINGLE):
        same_left = np.flatnonzero(~left.changed)
        everything = np.arange(right.keys.size)
        for rows, others in ((changed_left, everything), (same_left, changed_right)):
            a, b = pairs(left.keys[rows], right.keys[others])
            at, to = rows[a], others[b]
            weights = left.new[at] * right.new[to] - left.old[at] * right.old[to]
            out.append(Output(at, to, weights))
    if kind == SINGLE:
        _check_single(left, matches_new)
    out += _unmatched(kind, left, matches_old, matches_new)
    if kind == FULL:
        old = left.totals(keys, left.old)[right.keys]
        new = left.totals(keys, left.new)[right.keys]
        out.append(_missing(right.old, right.new, old, new, is_left=False))
    return [one for one in map(_without_zeros, out) if one.weights.size]


def _check_single(left: Side, matches: np.ndarray) -> None:
    """A left row may meet at most one row."""
    many = np.flatnonzero((matches > 1) & (left.new != 0))
    if many.size:
        names = [name for name in left.rows.column_names if name != "_all"]
        row = {name: left.rows.column(name)[int(many[0])].as_py() for name in names}
        raise DataError(f"{TOO_MANY}, for the row {row}")


def _unmatched(kind: str, left: Side, old: np.ndarray, new: np.ndarray) -> list[Output]:
    """Output rows that depend only on whether a left row has matches."""
    everything = np.arange(left.old.size)
    nothing = np.full(left.old.size, -1)
    had = left.old * (old > 0)
    has = left.new * (new > 0)
    if kind == SEMI:
        return [Output(everything, nothing, has - had)]
    if kind == EXISTENCE:
        with_match = Output(everything, nothing, has - had, np.ones(left.old.size, np.bool_))
        without = (left.new - has) - (left.old - had)
        return [
            with_match,
            Output(everything, nothing, without, np.zeros(left.old.size, np.bool_)),
        ]
    return [_missing(left.old, left.new, old, new, is_left=True)]


def _missing(
    before: np.ndarray, after: np.ndarray, old: np.ndarray, new: np.ndarray, *, is_left: bool
) -> Output:
    """Rows of one side that have no match on the other."""
    rows, nothing = np.arange(before.size), np.full(before.size, -1)
    weights = after * (new == 0) - before * (old == 0)
    return Output(rows, nothing, weights) if is_left else Output(nothing, rows, weights)


def _without_zeros(output: Output) -> Output:
    at = np.flatnonzero(output.weights)
    flags = None if output.flags is None else output.flags[at]
    return Output(output.left[at], output.right[at], output.weights[at], flags)


def candidates(left: Side, right: Side) -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose condition has to be evaluated; a left (right) row without one is paired with -1.

    Every left row meets every right row of its key.
    """
    at, to = pairs(left.keys, right.keys)
    alone_left = np.setdiff1d(np.arange(left.keys.size), at)
    alone_right = np.setdiff1d(np.arange(right.keys.size), to)
    return (
        np.concatenate([at, alone_left, np.full(alone_right.size, -1)]),
        np.concatenate([to, np.full(alone_left.size, -1), alone_right]),
    )


def settled(
    kind: str, left: Side, right: Side, at: np.ndarray, to: np.ndarray, match: np.ndarray
) -> list[Output]:
    """Changes of a join other than inner, once the condition of all candidates is known."""
    is_pair = match & (at >= 0) & (to >= 0)
    at, to = at[is_pair], to[is_pair]

    def counts(size: int, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        sums = np.zeros(size, np.int64)
        np.add.at(sums, rows, weights)
        return sums

    size = left.old.size
    matches_old, matches_new = counts(size, at, right.old[to]), counts(size, at, right.new[to])
    out = []
    if kind in (LEFT, FULL, SINGLE):
        out.append(Output(at, to, left.new[at] * right.new[to] - left.old[at] * right.old[to]))
    if kind == SINGLE:
        _check_single(left, matches_new)
    out += _unmatched(kind, left, matches_old, matches_new)
    if kind == FULL:
        size = right.old.size
        old, new = counts(size, to, left.old[at]), counts(size, to, left.new[at])
        out.append(_missing(right.old, right.new, old, new, is_left=False))
    return [one for one in map(_without_zeros, out) if one.weights.size]


def taken_or_null(table: pa.Table, positions: np.ndarray) -> list[pa.Array]:
    """Columns at positions; NULL where a position is -1."""
    indices = pa.array(positions, mask=positions < 0)
    return [column.take(indices) for column in chunks(table)]
