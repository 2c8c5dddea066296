"""The compiled code of records, loaded before a request has to wait for it.

Once after an installation it is compiled, which takes up to half a minute on a busy machine; from
then on a process loads it in less than a second.
"""

from __future__ import annotations

import pyarrow as pa

from windrow import agg
from windrow.algebra.aggregation import Aggregation
from windrow.features.definitions import GroupBy
from windrow.features.inputs.layout import EVENT_TIME, Layout
from windrow.online.evaluate import Evaluator
from windrow.online.folding import Batch, Folding
from windrow.online.records import Found
from windrow.online.served import ServedGroup
from windrow.sources.columns import KNOWN_AT
from windrow.sources.definitions import EventSource
from windrow.updates import DIFF


def load() -> None:
    """Make a small record of each form, let it grow, and evaluate it."""
    for changing in (False, True):
        served = _served(changing)
        batch = Batch.of(served, _rows(served))
        records = Folding(served, batch, sealed=0, positions=(0,))([None])
        records = Folding(served, batch, sealed=0, positions=(0,), upper=2)(records)
        Evaluator(served).features(Found.of(served, records), [10])


def _served(changing: bool) -> ServedGroup:
    numbers = (agg.count, agg.sum, agg.avg, agg.min, agg.max, agg.last)
    aggregations: list[Aggregation] = []
    for column in ("n", "x"):
        aggregations += [make(column).over("7d") for make in numbers]
    aggregations += [agg.last_k("n", 2).over("7d"), agg.histogram("n").over("7d")]
    group = GroupBy("loading", EventSource("s", table="t", time="t"), ["k"], aggregations)
    types = (pa.int64(), pa.float64())
    return ServedGroup(group, Layout((pa.int64(),), ("n", "x"), types, (), changing))


def _rows(served: ServedGroup) -> pa.Table:
    """Two rows of one key, in the columns of the group's arrangement."""
    layout = served.layout
    columns = {name: pa.array([1, 1]) for name in (*layout.keys, EVENT_TIME, DIFF)}
    if layout.changing:
        columns[KNOWN_AT] = pa.array([1, 1])
    for name, type_ in zip(layout.values, layout.input_types, strict=True):
        columns[name] = pa.array([1, 2], type_)
    return pa.table({name: columns[name] for name in (*layout.schema.names, DIFF)})
