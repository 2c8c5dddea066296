"""What the features would have been over other rows: the test of every explanation.

A hypothesis is a multiset of rows: without those that came later, without one of them, with one of
them twice. The hypotheses of many requests are computed at once, each as a key of its own, by what
a backfill's tasks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.features.compute.events import Events, QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.lifetimes import lifetimes
from windrow.features.definitions import GroupBy
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME
from windrow.rows.types import canonical_values, single_chunk
from windrow.sources.columns import KNOWN_AT
from windrow.updates import DIFF, int64_values

_MOST = 200
_ROWS = 500_000  # of all hypotheses of a kind


@dataclass(frozen=True)
class Hypothesis:
    """Rows of a key by their places, each as often as it counts; and the time of the request."""

    places: np.ndarray
    at: int


def features_over(
    inputs: GroupInputs, group: GroupBy, rows: pa.Table, several: Sequence[Hypothesis]
) -> list[pa.Array]:
    """For each feature of the group an array: its value under each hypothesis."""
    layout = inputs.layout
    places = np.concatenate([one.places for one in several])
    number = np.repeat(np.arange(len(several)), [one.places.size for one in several])
    table = rows.take(pa.array(places))
    lives = None
    if layout.changing:
        columns = [pa.array(number)] + [
            canonical_values(single_chunk(table.column(name)))
            for name in layout.schema.names
            if name != KNOWN_AT
        ]
        known_at = int64_values(table, KNOWN_AT)
        found = lifetimes(columns, known_at, int64_values(table, DIFF), inputs.content.snapshots)
        table, number = table.take(pa.array(found.rows)), number[found.rows]
        lives = (found.born, found.died)
    else:
        copies = np.maximum(int64_values(table, DIFF), 0)
        repeated = np.repeat(np.arange(table.num_rows), copies)
        table, number = table.take(pa.array(repeated)), number[repeated]
    events = Events(
        pa.table({"k0": pa.array(number, pa.int64())}),
        int64_values(table, EVENT_TIME),
        layout.input_table(table),
        layout.condition_masks(table),
        lives=lives,
    )
    count = len(several)
    queries = QueryTimes(
        pa.table({"k0": pa.array(np.arange(count), pa.int64())}),
        np.array([one.at for one in several], np.int64),
        np.ones(count, np.bool_),
    )
    return group_features(group, events, queries)


def affordable(rows: int) -> int:
    """How many hypotheses of each kind, about so many rows, can be tested."""
    return max(1, min(_MOST, _ROWS // max(rows, 1)))
