"""Aggregates over spans: for each value the queries that count it, instead of the other way.

Queries of a key are sorted by time. Whatever decides whether a row counts for a query (its own
time in the window, the times at which it appeared and disappeared) only switches once on and
once off as queries advance, so a row counts for a range of queries, its *span*. Rows may arrive in
any order, and nothing has to be subtracted when one leaves.

    group, exact        difference arrays: add where a span starts, subtract where it ends
    group, floats       a tree over the queries: a span is a few whole nodes; a query adds up the
    lattice, first/last nodes above it, so what is outside its windows cannot leave a trace
    all others          the same tree, of partial states
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.arrays import as_float64, enumerate_lists
from windrow.algebra.tree import add_dd, add_moments
from windrow.rows.ordering import LOWEST, exact


@dataclass(frozen=True)
class Spans:
    """For each element the queries `[first, last)` that count it; `queries` is their number."""

    first: np.ndarray
    last: np.ndarray
    queries: int

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """How many elements each query counts."""
        steps = np.bincount(self.first, minlength=self.queries + 1)
        steps = steps - np.bincount(self.last, minlength=self.queries + 1)
        total: np.ndarray = np.cumsum(steps)[: self.queries]
        return total

    @functools.cached_property
    def distinct(self) -> tuple[Spans, np.ndarray]:
        """The different spans, and for each element the number of its own."""
        codes = self.first * (self.queries + 1) + self.last
        found, group = np.unique(codes, return_inverse=True)
        first, last = np.divmod(found, self.queries + 1)
        return Spans(first, last, self.queries), group


@dataclass(frozen=True)
class SpannedColumn:
    """Input values without NULLs, their own times, and their spans, none of them empty."""

    values: pa.Array
    times: np.ndarray
    spans: Spans

    @functools.cached_property
    def float_sums(self) -> np.ndarray:
        """The sum for each query; shared by several aggregates."""
        values, spans = as_float64(self.values), self.spans
        sums, errors = tree_sum_pairs(values, spans.first, spans.last, spans.queries)
        rounded: np.ndarray = sums + errors
        return rounded

    @functools.cached_property
    def words(self) -> np.ndarray:
        """int64 words in the order of the values."""
        return exact(self.values)


def nodes_of(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of the tree that make up each span: pairs of node and element."""
    size = leaves(spans.queries)
    counts = _node_counts(spans.first, spans.last, size)
    nodes = _node_list(spans.first, spans.last, size, counts)
    return nodes, np.repeat(np.arange(spans.first.size), counts)


def paths_to(used: np.ndarray, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of a query and the place in `used` (sorted) of a node above it."""
    size = leaves(queries)
    low, high = used.copy(), used.copy() + 1  # the leaves below a node are [low, high)
    while low.size and (low < size).any():
        above = low < size
        low = np.where(above, 2 * low, low)
        high = np.where(above, 2 * high, high)
    first = np.minimum(low - size, queries)
    lengths = np.minimum(high - size, queries) - first
    place, within = enumerate_lists(lengths)
    return first[place] + within, place


def leaves(queries: int) -> int:
    """The least power of two that is not below `queries`; node i has children 2i and 2i + 1."""
    return 1 << max(queries - 1, 0).bit_length()


@njit(cache=True, nogil=True)
def _node_counts(first: Any, last: Any, size: Any) -> Any:
    counts = np.zeros(first.size, np.int64)
    for e in range(first.size):
        a, b = first[e] + size, last[e] + size
        while a < b:
            counts[e] += (a & 1) + (b & 1)
            a = (a + 1) >> 1
            b >>= 1
    return counts


@njit(cache=True, nogil=True)
def _node_list(first: Any, last: Any, size: Any, counts: Any) -> Any:
    out = np.empty(counts.sum(), np.int64)
    at = 0
    for e in range(first.size):
        a, b = first[e] + size, last[e] + size
        while a < b:
            if a & 1:
                out[at] = a
                at += 1
                a += 1
            if b & 1:
                b -= 1
                out[at] = b
                at += 1
            a >>= 1
            b >>= 1
    return out


@njit(cache=True, nogil=True)
def _leaves(queries: Any) -> Any:
    size = 1
    while size < queries:
        size *= 2
    return size


@njit(cache=True, nogil=True)
def tree_sum_pairs(values: Any, first: Any, last: Any, queries: Any) -> Any:
    """For each query the sum of the values whose span holds it, as a double-double."""
    size = top = _leaves(queries)
    high, low = np.zeros(2 * size, np.float64), np.zeros(2 * size, np.float64)
    e = 0
    while e < values.size:
        a, b = first[e] + size, last[e] + size
        value, rest = values[e], 0.0
        e += 1
        # Neighbours often have the same span: their sum goes into the tree.
        while e < values.size and first[e] + size == a and last[e] + size == b:
            value, rest = add_dd(value, rest, values[e], 0.0)
            e += 1
        while a < b:
            top = min(top, a)
            if a & 1:
                high[a], low[a] = add_dd(high[a], low[a], value, rest)
                a += 1
            if b & 1:
                b -= 1
                high[b], low[b] = add_dd(high[b], low[b], value, rest)
            a >>= 1
            b >>= 1
    # Each node passes its sum on to those below it, level by level; above `top` there is nothing.
    for node in range(2 * top, size + queries):
        above = node >> 1
        high[node], low[node] = add_dd(high[above], low[above], high[node], low[node])
    return high[size : size + queries].copy(), low[size : size + queries].copy()


@njit(cache=True, nogil=True)
def tree_best(major: Any, minor: Any, first: Any, last: Any, queries: Any) -> Any:
    """For each query the element with the largest words, by major and then minor; -1 for none.

    Nodes hold the words of their best, not only its number: most elements lose by one comparison.
    """
    size = top = _leaves(queries)
    best = np.full(2 * size, -1, np.int64)
    best_major = np.full(2 * size, LOWEST, np.int64)
    best_minor = np.full(2 * size, LOWEST, np.int64)
    e = 0
    while e < first.size:
        a, b = first[e] + size, last[e] + size
        at, x, y = e, major[e], minor[e]
        e += 1
        # Neighbours often have the same span: only the best of them goes into the tree.
        while e < first.size and first[e] + size == a and last[e] + size == b:
            if major[e] > x or (major[e] == x and minor[e] > y):
                at, x, y = e, major[e], minor[e]
            e += 1
        while a < b:
            top = min(top, a)
            if a & 1:
                if x > best_major[a] or (x == best_major[a] and y >= best_minor[a]):
                    best[a], best_major[a], best_minor[a] = at, x, y
                a += 1
            if b & 1:
                b -= 1
                if x > best_major[b] or (x == best_major[b] and y >= best_minor[b]):
                    best[b], best_major[b], best_minor[b] = at, x, y
            a >>= 1
            b >>= 1
    # Each node passes its best on to those below it, level by level; above `top` there is nothing.
    for node in range(2 * top, size + queries):
        above = node >> 1
        x, y = best_major[above], best_minor[above]
        # One that is empty has the lowest words, and so may an element.
        if (
            x > best_major[node]
            or (x == best_major[node] and y > best_minor[node])
            or best[node] < 0
        ):
            best[node], best_major[node], best_minor[node] = best[above], x, y
    return best[size : size + queries].copy()


@njit(cache=True, nogil=True)
def tree_largest(words: Any, first: Any, last: Any, queries: Any) -> Any:
    """The same by one word: for each query the element with the largest; -1 for none."""
    size = top = _leaves(queries)
    best = np.full(2 * size, -1, np.int64)
    most = np.full(2 * size, LOWEST, np.int64)
    e = 0
    while e < first.size:
        a, b = first[e] + size, last[e] + size
        at, x = e, words[e]
        e += 1
        while e < first.size and first[e] + size == a and last[e] + size == b:
            if words[e] > x:
                at, x = e, words[e]
            e += 1
        while a < b:
            top = min(top, a)
            if a & 1:
                if x >= most[a]:
                    best[a], most[a] = at, x
                a += 1
            if b & 1:
                b -= 1
                if x >= most[b]:
                    best[b], most[b] = at, x
            a >>= 1
            b >>= 1
    for node in range(2 * top, size + queries):
        above = node >> 1
        if most[above] > most[node] or best[node] < 0:
            best[node], most[node] = best[above], most[above]
    return best[size : size + queries].copy()


@njit(inline="always")
def _into(tree: Any, node: Any, value: Any, spread: Any) -> None:
    n, m1, m2, m3, m4 = add_moments(
        tree[node, 0],
        tree[node, 1],
        tree[node, 2],
        tree[node, 3],
        tree[node, 4],
        1.0,
        value,
        spread,
        spread,
        spread,
    )
    tree[node, 0], tree[node, 1], tree[node, 2] = n, m1, m2
    tree[node, 3], tree[node, 4] = m3, m4


@njit(cache=True, nogil=True)
def tree_moments(values: Any, first: Any, last: Any, queries: Any) -> Any:
    """For each query: count, mean, and sums of powers 2 to 4 of the deviations."""
    size = _leaves(queries)
    tree = np.zeros((2 * size, 5), np.float64)
    for e in range(values.size):
        value = values[e]
        spread = 0.0 if np.isfinite(value) else np.nan  # no deviation from such a mean
        a, b = first[e] + size, last[e] + size
        while a < b:
            if a & 1:
                _into(tree, a, value, spread)
                a += 1
            if b & 1:
                b -= 1
                _into(tree, b, value, spread)
            a >>= 1
            b >>= 1
    for node in range(2, size + queries):  # as in `tree_sum_pairs`
        n, m1, m2, m3, m4 = tree[node]
        c = tree[node >> 1]
        tree[node] = add_moments(n, m1, m2, m3, m4, c[0], c[1], c[2], c[3], c[4])
    return tree[size : size + queries].copy()
