"""Aggregations over the values of their column: by ranges, or by spans.

A function has its own way, or none: then its states are combined along a tree.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.both import Both
from windrow.algebra.ranges import Column, Ranges
from windrow.algebra.spans import (
    SpannedColumn,
    Spans,
    leaves,
    nodes_of,
    paths_to,
)
from windrow.algebra.states import States, about


def evaluate(aggregation: Aggregation, column: Column, ranges: Ranges) -> pa.Array:
    """The result for each range of the column's values, of the function's result type."""
    with about(aggregation.column):
        found = aggregation.function.over_ranges(column, ranges)
    if found is None:
        states = states_of(aggregation, column.values.type)
        return states.lower(range_states(states, column, ranges))
    return _typed(aggregation, found, column.values.type)


def evaluate_spans(aggregation: Aggregation, column: SpannedColumn) -> pa.Array:
    """The result for each query, of the function's result type."""
    with about(aggregation.column):
        found = aggregation.function.over_spans(column)
    if found is None:
        states = states_of(aggregation, column.values.type)
        return states.lower(span_states(states, column))
    return _typed(aggregation, found, column.values.type)


def evaluate_both(aggregation: Aggregation, both: Both) -> pa.Array | None:
    """The same for values of which most have ranges; None: the function has no way to do so."""
    with about(aggregation.column):
        found = aggregation.function.over_both(both)
    return None if found is None else _typed(aggregation, found, both.column.values.type)


def _typed(aggregation: Aggregation, found: pa.Array, value_type: pa.DataType) -> pa.Array:
    expected = aggregation.function.result(value_type)
    return found if found.type == expected else found.cast(expected)


def states_of(aggregation: Aggregation, value_type: pa.DataType) -> States:
    """The partial states of an aggregation over values of a type."""
    return States.of(aggregation.function, value_type, aggregation.column)


def range_states(states: States, column: Column, ranges: Ranges) -> pa.Array:
    """Any aggregate: the state of the values in each range.

    A tree over the values has the states of two nodes combined in the node above them; a range is
    a few whole nodes.
    """
    size = len(column.values)
    level = states.lift(column.values, column.ties, np.arange(size), size)
    levels = [level]
    while len(level) > 1:
        pairs = np.arange(len(level)) // 2
        level = states.combine(level, pairs, int(pairs[-1]) + 1)
        levels.append(level)
    node, query = nodes_of(Spans(ranges.start, ranges.end, size))
    # Node i is above 2i and 2i + 1; those with as many bits as the first leaf are the leaves.
    _, bits = np.frexp(node)
    height = leaves(size).bit_length() - bits
    first = np.cumsum([0, *map(len, levels)])
    place = first[height] + node - (1 << (bits.astype(np.int64) - 1))
    return states.combine(pa.concat_arrays(levels).take(pa.array(place)), query, len(ranges))


def span_states(states: States, column: SpannedColumn) -> pa.Array:
    """Any aggregate: for each query the state of the elements it counts.

    Elements with the same span are lifted together, so that all that follows costs spans, not
    elements. A span is a few nodes of the tree, and a query combines the nodes above it.
    """
    spans, group = column.spans.distinct
    lifted = states.lift(column.values, column.times, group, spans.first.size)
    node, span = nodes_of(spans)
    used, of_node = np.unique(node, return_inverse=True)
    nodes = states.combine(lifted.take(pa.array(span)), of_node, used.size)
    query, place = paths_to(used, spans.queries)
    return states.combine(nodes.take(pa.array(place)), query, spans.queries)
