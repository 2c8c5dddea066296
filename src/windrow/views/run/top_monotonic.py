"""The first rows of groups whose rows only come: what is behind them is forgotten for good.

    changes ─▶ the first of each group ─▶ [exchange] ─▶ with the first rows as they were
                                                         ─▶ the first rows as they are

A row that is not among the first now has as many before it for ever, so it is never stored, and
nothing has to be retracted. A group keeps its first k rows; of ranks, those that have one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.shard.firsts import Rows, consolidated
from windrow.views.run.stages import Stage
from windrow.views.run.task import EVERYTHING, Arranged, Task
from windrow.views.run.topping import Ranked
from windrow.views.run.weighted import Weighted, concatenated, distinct


@dataclass(frozen=True)
class MonotonicTop(Stage):
    """Takes the columns of rows, others to order by, and `_diff`; gives the first rows."""

    ranked: Ranked
    tops: Arranged

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        ranked = self.ranked
        delta = ranked.keyed(ranked.delta(table))
        if not delta.size:
            return
        refuse_retractions(delta, ranked)
        groups = distinct(delta.rows.select(list(ranked.key)))
        old = task.old(self.tops, groups)
        was = ranked.numbered(groups, old)
        change = ranked.first(ranked.numbered(groups, delta))
        now = ranked.first(consolidated(Rows.together([was, change]), ranked.order))
        kept = Weighted(now.table, now.weights)
        task.write(self.tops, concatenated([kept, old.negated()]).consolidated())
        yield ranked.changes(now, was, self.gives.names)


def refuse_retractions(delta: Weighted, ranked: Ranked) -> None:
    """What only comes cannot go: the rows behind the first ones are not known any more."""
    below = np.flatnonzero(delta.weights < 0)
    if below.size:
        names = ranked.schema.names[: -ranked.own]
        row = {
            name: delta.rows.column(name)[int(below[0])].as_py()
            for name in names
            if name != EVERYTHING
        }
        raise DataError(
            f"{below.size} rows are retracted from what is taken to be append-only, the first is "
            f"{row!r:.300}. Nothing was committed. Create the view with the property "
            "'topk' = 'sorted', which keeps all rows, or declare its inputs as they are and "
            "REFRESH it"
        )
