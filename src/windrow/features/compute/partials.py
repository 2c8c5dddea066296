"""Partial features: for some of the events, the state of each query, to be combined with others.

Tasks that each see a share of the events, in any order, make partials; one that has them all
combines and lowers them. A partial of a feature is a table

    query   int64            the place of the query
    b0, b1  bucket values    only for features with buckets, outermost first
    state   struct           see windrow.algebra.states
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.evaluate import span_states, states_of
from windrow.algebra.states import States
from windrow.features.compute.buckets import bucket_maps, lanes_of
from windrow.features.compute.elements import Elements
from windrow.features.compute.events import Events
from windrow.features.compute.spanned import LiveQueries, Spanned
from windrow.features.compute.timeline import Timelines
from windrow.features.compute.types import input_type
from windrow.features.definitions import GroupBy
from windrow.rows.ordering import exact
from windrow.rows.types import single_chunk

QUERY, STATE = "query", "state"


def partial_features(
    group: GroupBy, events: Events, timelines: Timelines, live: LiveQueries
) -> list[pa.Table]:
    """A partial for each feature of the group."""
    elements: dict[object, Elements] = {}
    spans: dict[object, Spanned] = {}
    found: list[pa.Table] = []
    for aggregation in group.aggregations:
        inputs = (aggregation.column, aggregation.bucket, aggregation.condition)
        if inputs not in elements:
            elements[inputs] = Elements.make(aggregation, events, timelines)
        for feature in aggregation.features():
            if (inputs, feature.window) not in spans:
                first, last = live.spans(feature.window)
                spans[inputs, feature.window] = elements[inputs].spanned(
                    first, last, live, timelines
                )
            found.append(partial(aggregation, spans[inputs, feature.window]))
    return found


def partial(aggregation: Aggregation, spanned: Spanned) -> pa.Table:
    """The states of elements for the queries that count them."""
    column = spanned.column
    states = states_of(aggregation, column.values.type)
    there = np.flatnonzero(column.spans.counts > 0)
    found = span_states(states, column).take(pa.array(there))
    levels = [level.take(pa.array(spanned.leader(there))) for level in spanned.levels]
    names = [QUERY, *(f"b{i}" for i in range(len(levels))), STATE]
    return pa.table([pa.array(spanned.query(there)), *levels, found], names=names)


def combine_features(
    group: GroupBy, inputs: pa.Schema, partials: Sequence[Sequence[pa.Table]], queries: int
) -> list[pa.Array]:
    """For each feature its result for queries 0 to `queries` - 1, and last for one without events.

    `partials` holds, for each feature, the tables of all tasks; `inputs` the columns' types.
    """
    results = []
    for feature, tables in zip(group.features, partials, strict=True):
        aggregation = feature.aggregation
        type_ = inputs.field(aggregation.column).type
        states = states_of(aggregation, input_type(type_))
        results.append(combine_partials(states, tables, queries + 1))
    return results


def combine_partials(states: States, tables: Sequence[pa.Table], queries: int) -> pa.Array:
    """The result of a feature for queries 0 to `queries` - 1."""
    table = pa.concat_tables(tables).combine_chunks()
    query = table.column(QUERY).to_numpy()
    partial = single_chunk(table.column(STATE))
    levels = [single_chunk(table.column(name)) for name in table.column_names[1:-1]]
    if not levels:
        return states.lower(states.combine(partial, query, queries))
    codes = [exact(level) for level in levels]
    lanes, leader = lanes_of(np.vstack([query, *codes]))
    found = states.combine(partial, lanes, leader.size)
    there = states.rows(found) > 0  # a bucket whose rows were all retracted does not exist
    if not there.all():
        found, leader = found.filter(pa.array(there)), leader[there]
    return bucket_maps(states.lower(found), query[leader], leader, levels, codes, queries)


def no_partials(group: GroupBy, inputs: pa.Schema) -> list[pa.Table]:
    """Partials of no events, of the right types."""
    found = []
    for feature in group.features:
        aggregation = feature.aggregation
        type_ = inputs.field(aggregation.column).type
        levels = []
        if aggregation.bucket is not None:
            levels.append(inputs.field(aggregation.bucket).type)
        if pa.types.is_map(type_):
            levels.append(type_.key_type)
        state = states_of(aggregation, input_type(type_)).type
        fields = [(QUERY, pa.int64()), *((f"b{i}", t) for i, t in enumerate(levels))]
        found.append(pa.schema([*fields, (STATE, state)]).empty_table())
    return found
