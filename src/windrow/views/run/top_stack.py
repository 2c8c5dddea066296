"""The first rows of groups by a stack of reductions, over ever coarser buckets of a group.

    changes ─▶ level 0 (group, hash % 16^n) ─▶ level 1 (group, hash % 16^(n-1)) ─▶ ... ─▶ (group)
                 keeps its input: all rows       keeps its input: the first of each bucket

A level keeps what goes into it. Of each bucket that a change touches, it computes which rows are
behind the first k, before and after; the change less what that changed goes to the next level. A
change behind the first k of its bucket is absorbed there, and touches no level above.

Each of the buckets of a level has the first rows of 16 of the level below it, so at most 16 k rows
are sorted for a change at each level, and the lowest has as many as the groups' sizes were expected
to give it. Without levels beneath the last one, groups are small: their rows are all that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.hashing import hash_rows
from windrow.rows.types import single_chunk
from windrow.shard.firsts import Rows, consolidated
from windrow.views.run.stages import Stage, check_weights
from windrow.views.run.task import Arranged, Task
from windrow.views.run.topping import Ranked
from windrow.views.run.weighted import Weighted, concatenated, distinct


@dataclass(frozen=True)
class Level:
    """One reduction of a stack; `bucket` is the column of the bucket, if there are several."""

    arranged: Arranged
    modulus: int
    bucket: str | None

    @property
    def key(self) -> list[str]:
        return list(self.arranged.key)

    def placed(self, rows: Weighted, order: str) -> Weighted:
        """Rows with their buckets."""
        if self.bucket is None:
            return rows
        hashes = hash_rows([single_chunk(rows.rows.column(order))])
        buckets = pa.array(hashes & np.int64(self.modulus - 1), pa.int64())
        return Weighted(rows.rows.append_column(self.bucket, buckets), rows.weights)


@dataclass(frozen=True)
class StackedTop(Stage):
    """Takes the columns of rows, others to order by, and `_diff`; gives the first rows."""

    ranked: Ranked
    levels: tuple[Level, ...]  # the finest first; the last has one bucket a group

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        delta = self.ranked.keyed(self.ranked.delta(table))
        for level in self.levels[:-1]:
            if delta.size:
                delta = self._passed(task, level, delta)
        if delta.size:
            was, now = self._buckets(task, self.levels[-1], delta)
            yield self.ranked.changes(now, was, self.gives.names)

    def _passed(self, task: Task, level: Level, delta: Weighted) -> Weighted:
        """What is left of a change once rows behind the first of their bucket are taken away."""
        was, now = self._buckets(task, level, level.placed(delta, self.ranked.order))
        rejected = [
            Weighted(behind.table.select(self.ranked.schema.names), behind.weights * sign)
            for behind, sign in ((self.ranked.behind(now), -1), (self.ranked.behind(was), 1))
            if behind.size
        ]
        return concatenated([delta, *rejected]).consolidated() if rejected else delta

    def _buckets(self, task: Task, level: Level, delta: Weighted) -> tuple[Rows, Rows]:
        """All rows of the buckets that a change touches, as they were and as they are."""
        task.write(level.arranged, delta)
        buckets = distinct(delta.rows.select(level.key))
        was = self.ranked.numbered(buckets, task.old(level.arranged, buckets))
        change = self.ranked.numbered(buckets, delta)
        now = consolidated(Rows.together([was, change]), self.ranked.order)
        check_weights(now.table, now.weights)
        return was, now
