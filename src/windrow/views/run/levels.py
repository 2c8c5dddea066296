"""Levels of candidates: the best of a group under retraction, without looking at all of it.

A value's hash says which subgroup of its group it is in. The first of n levels has 16^(n-1)
subgroups of each group, the next a sixteenth of them, the last one: the group itself. The best
value of a subgroup advances to the next level, and the others are rejected:

    values ─▶ level 1 ─▶ best of 256 subgroups ─▶ level 2 ─▶ best of 16 ─▶ level 3 ─▶ best
                 └─▶ rejected                        └─▶ rejected

    level 1 = all values;   level i = level i+1 + rejected of level i

So a change looks at the subgroups it falls into, one of each level as long as a best value
changes: of about 16 values each, if the group is as large as expected. From the second level on, a
value is there or not: how often it is there is known to the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.hashing import hash_rows
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.views.run.joining import side_of
from windrow.views.run.stages import check_weights
from windrow.views.run.task import Arranged, Task
from windrow.views.run.weighted import Weighted, distinct, number_rows, take

_BITS = 4  # of the hash, for 16 subgroups of each
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Level:
    """One level. Both hold key columns, the number of the subgroup, and the value.

    `rows` come in; `rejected` are those that do not advance (None of the last level).
    """

    rows: Arranged
    rejected: Arranged | None


@dataclass(frozen=True)
class Reached:
    """The last level where changes have reached it: all values of the groups that they touch.

    `best` are the positions of the least (False) and largest (True) of each group, if wanted.
    """

    keys: pa.Table
    values: pa.Array
    best: Mapping[bool, np.ndarray]


def advanced(
    task: Task, levels: Sequence[Level], sides: Sequence[bool], values: Weighted
) -> Reached:
    """Take changes of values (key columns, then the value) through all levels."""
    change = values
    for number, level in enumerate(levels):
        if not change.size:  # the best values of all subgroups are what they were
            names = change.rows.column_names
            value = single_chunk(change.rows.columns[-1])
            return Reached(change.rows.select(names[:-1]), value, dict.fromkeys(sides, _NONE))
        delta = _in_subgroups(change, level, len(levels) - number - 1)
        task.write(level.rows, delta)
        by = list(level.rows.key)
        old = task.old(level.rows, distinct(delta.rows.select(by)))
        side = side_of(old, delta)
        check_weights(side.rows, side.new)
        (subgroups,), _ = number_rows([side.rows.select(by)])
        value = single_chunk(side.rows.columns[-1])
        was = _best(subgroups, value, side.old > 0, sides)
        now = _best(subgroups, value, side.new > 0, sides)
        names = side.rows.column_names
        if level.rejected is None:
            keys = side.rows.select(names[:-2])
            return Reached(keys, value, now)
        advances, advanced_ = _union(now, value), _union(was, value)
        moved = advances.astype(np.int64) - advanced_
        comes = (side.new > 0).astype(np.int64) - (side.old > 0)
        task.write(level.rejected, _nonzero(side.rows, comes - moved))
        change = _nonzero(side.rows.select([*names[:-2], names[-1]]), moved)
    raise AssertionError("the last level has no rejected values")


def _in_subgroups(change: Weighted, level: Level, above: int) -> Weighted:
    """Rows with the number of their subgroup, one of 16 to the power of `above`."""
    columns = [single_chunk(column) for column in change.rows.columns]
    hashes = hash_rows([columns[-1]])
    subgroup = pa.array(hashes & ((1 << (_BITS * above)) - 1), pa.int64())
    schema = level.rows.schema
    rows = pa.table([*columns[:-1], subgroup, columns[-1]], names=schema.names)
    return Weighted(rows.cast(schema), change.weights)


def _best(
    subgroups: np.ndarray, values: pa.Array, there: np.ndarray, sides: Sequence[bool]
) -> dict[bool, np.ndarray]:
    """The positions of the best values of all subgroups, among those that are there."""
    at = np.flatnonzero(there)
    ranks = exact(values)[at]
    # Equal values that are stored differently: the same one is the best at every tick.
    ties = hash_rows([values])[at]
    found = {}
    for largest in sides:
        order = np.lexsort((ties, ~ranks if largest else ranks, subgroups[at]))
        _, first = np.unique(subgroups[at][order], return_index=True)
        found[largest] = at[order[first]]
    return found


def _union(best: Mapping[bool, np.ndarray], values: pa.Array) -> np.ndarray:
    mask = np.zeros(len(values), np.bool_)
    for positions in best.values():
        mask[positions] = True
    return mask


def _nonzero(rows: pa.Table, weights: np.ndarray) -> Weighted:
    at = np.flatnonzero(weights)
    return Weighted(take(rows, at), weights[at])
