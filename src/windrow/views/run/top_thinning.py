"""Rows thinned to the first of each group before they are exchanged.

Each task of an exchange sees some rows of a group. What is not among the first of those is not
among the first of all, as long as nothing is retracted: always, where the input only grows; in a
fill, whatever the input, since it reads consolidated snapshots. What the plan keeps of all rows is
stored here, on this side of the exchange, so that only k rows of a group and task go through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.types import single_chunk
from windrow.shard.firsts import Rows, consolidated
from windrow.views.run.stages import Stage, check_weights
from windrow.views.run.task import Arranged, Task
from windrow.views.run.top_monotonic import refuse_retractions
from windrow.views.run.top_stack import Level
from windrow.views.run.topping import Ranked
from windrow.views.run.weighted import Groups, Weighted, batches_of, distinct, table_of

_PIECE = 1 << 18  # rows that are held before they are thinned


@dataclass(frozen=True)
class Thin(Stage):
    """Takes and gives the columns of rows, others to order by, and `_diff`.

    `stored` is what holds all rows, if anything does; of a stack, its lowest level. If nothing
    does, rows are thinned as they come, and a few times k of a group are ever in memory.
    """

    ranked: Ranked
    stored: Arranged | Level | None

    def gathered(self, batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, int]:
        if self.stored is not None:
            return super().gathered(batches)
        held: list[pa.RecordBatch] = []
        given = rows = 0
        enough = _PIECE
        for batch in batches:
            held.append(batch)
            given, rows = given + batch.num_rows, rows + batch.num_rows
            if rows >= enough:
                delta = self.ranked.delta(table_of(held, self.given))
                keyed = self.ranked.keyed(delta)
                if (keyed.weights < 0).any():  # `compute` will refuse it
                    enough = 2 * rows
                    continue
                thin = self._thinned(delta, keyed, list(self.ranked.key)).updates()
                held = list(batches_of(thin, self.given))
                rows = thin.num_rows
                enough = max(_PIECE, 2 * rows)  # so that each row is looked at twice or so
        return table_of(held, self.given), given

    def compute(self, task: Task, table: pa.Table) -> Iterator[pa.Table]:
        delta = self.ranked.delta(table)
        if not delta.size:
            return
        rows = self.ranked.keyed(delta)
        if self.stored is None:
            refuse_retractions(rows, self.ranked)
        check_weights(rows.rows, rows.weights)
        keys = list(self.ranked.key)
        if isinstance(self.stored, Level):
            rows = self.stored.placed(rows, self.ranked.order)
            keys = self.stored.key
            task.write(self.stored.arranged, rows)
        elif self.stored is not None:
            task.write(self.stored, rows)
        yield self._thinned(delta, rows, keys).updates()

    def _thinned(self, delta: Weighted, rows: Weighted, keys: list[str]) -> Weighted:
        groups = rows.rows.select(keys)
        numbers = Groups(distinct(groups)).of(groups)
        places = pa.array(np.arange(rows.size))
        wanted = dict.fromkeys((self.ranked.order, self.ranked.peer))
        columns = {name: single_chunk(rows.rows.column(name)) for name in wanted}
        light = pa.table({"place": places, **columns})
        found = consolidated(Rows(light, numbers, rows.weights), self.ranked.order)
        first = self.ranked.first(found)
        at = first.table.column("place").to_numpy()
        return Weighted(delta.take(at).rows, first.weights)
