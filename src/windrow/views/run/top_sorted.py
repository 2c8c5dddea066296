"""The first rows of groups, kept as what they are and refilled by a search.

    changes ─▶ order keys ─┬─▶ sorted rows, by group and order
                           └─▶ the first rows of each touched group, as they were ─▶ as they are

The first rows of a group are kept apart: what comes or goes behind the last changes nothing.
Only where more of them go than come are the next ones looked up, in the sorted rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk
from windrow.shard.firsts import Rows, consolidated, first_rows
from windrow.views.run.stages import Stage, check_weights
from windrow.views.run.task import Arranged, Task
from windrow.views.run.topping import ROW_NUMBER, Ranked
from windrow.views.run.weighted import Weighted, concatenated, distinct, take

_LOOK = 32  # rows of each part that a search looks at, at least


@dataclass(frozen=True)
class SortedTop(Stage):
    """Takes the columns of rows, others to order by, and `_diff`; gives the first rows."""

    ranked: Ranked
    rows: Arranged
    tops: Arranged

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        ranked = self.ranked
        delta = ranked.keyed(ranked.delta(table))
        if not delta.size:
            return
        task.write(self.rows, delta)
        groups = distinct(delta.rows.select(list(ranked.key)))
        old = task.old(self.tops, groups)
        was = ranked.numbered(groups, old)
        change = ranked.numbered(groups, delta)
        now = consolidated(self._after(task, groups, was, change), ranked.order)
        kept = Weighted(now.table, now.weights)
        task.write(self.tops, concatenated([kept, old.negated()]).consolidated())
        yield ranked.changes(now, was, self.gives.names)

    def _after(self, task: Task, groups: pa.Table, was: Rows, change: Rows) -> Rows:
        """The first rows of each group after the change, with all copies of the last."""
        ranked, top = self.ranked, self.ranked.top
        count, depth = groups.num_rows, top.depth
        # A group with fewer rows has no others: all that is known of it is all that there is.
        whole = top.measures(was, ranked.before(was), count) < depth
        matters = whole[change.keys] | self._within(was, change, count)
        found = Rows.together([was, change.take(np.flatnonzero(matters))])
        candidates = consolidated(found, ranked.order)
        check_weights(candidates.table, candidates.weights)
        before = ranked.before(candidates)
        measures = top.measures(candidates, before, count)
        open_ = np.flatnonzero(~whole & (measures < depth))
        kept = candidates.take(np.flatnonzero((before < depth) & ~np.isin(candidates.keys, open_)))
        if not open_.size:
            return kept
        places = np.full(count, -1)
        places[open_] = np.arange(open_.size)
        mine = change.take(np.flatnonzero(places[change.keys] >= 0))
        read = task.collection(self.rows.collection).snapshot(task.run.lower - 1)
        next_ = first_rows(
            read,
            take(groups, open_),
            ranked.order,
            Rows(mine.table, places[mine.keys], mine.weights),
            self._enough,
            depth=max(_LOOK, 2 * depth),
        )
        next_ = consolidated(next_, ranked.order)
        check_weights(next_.table, next_.weights)
        next_ = next_.take(np.flatnonzero(ranked.before(next_) < depth))
        return Rows.together([kept, Rows(next_.table, open_[next_.keys], next_.weights)])

    def _within(self, was: Rows, change: Rows, count: int) -> np.ndarray:
        """Which changes are not behind the last row that was known of their group."""
        ranked = self.ranked
        column = ranked.order if ranked.top.function == ROW_NUMBER else ranked.peer
        own = single_chunk(was.table.column(column))
        other = single_chunk(change.table.column(column))
        ranks = exact(pa.concat_arrays([own, other.cast(own.type)]))
        last = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(last, was.keys, ranks[: was.size])
        found: np.ndarray = ranks[was.size :] <= last[change.keys]
        return found

    def _enough(self, rows: Rows, count: int) -> np.ndarray:
        top, before = self.ranked.top, self.ranked.before(rows)
        seen = np.zeros(count, np.bool_)
        seen[rows.keys[before >= top.depth]] = True  # the first that is not one of them
        if top.function == ROW_NUMBER:
            seen |= top.measures(rows, before, count) >= top.depth
        return seen
