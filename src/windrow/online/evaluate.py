"""Features of records at a time: all requested keys at once.

Machine words are merged by one compiled function where they lie in the records. States are
decoded and combined lane by lane; rows that change are computed as in a backfill.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import not_
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.words import EMPTY, OVERFLOW, Result, lower_words, merge_part
from windrow.errors import DataError
from windrow.features.compute.events import QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.partials import QUERY, STATE, combine_partials
from windrow.online.live_rows import decode_rows, events_of
from windrow.online.records import COUNT, HEAD, Found
from windrow.online.served import TILES, Lane, ServedGroup, WordFeature
from windrow.rows.types import has_type

t = pa.types


class Column(NamedTuple):
    """The values of one feature, as Python's."""

    values: list[Any]
    empty: list[bool] | None  # which have no value, or that of an empty window; None: none of them


class Evaluator:
    """Evaluates the features of one group; made once, used for every request."""

    def __init__(self, served: ServedGroup) -> None:
        self.served = served
        # Features that are doubles first: the words of all of them are read at once.
        words = sorted(served.word_features, key=lambda one: not one.words.gives_float)
        self._words = [
            (one.feature, _maker(served.types[one.feature]), one.words.result is Result.COUNT)
            for one in words
        ]
        self._floats = sum(one.words.gives_float for one in words)
        # Sum and average of one window, say, are made of the same parts: these are merged once.
        merges = list(dict.fromkeys(map(_merge, words)))
        self._merges = np.array(merges, np.int64).reshape(len(merges), 5)
        self._results = np.array(
            [(merges.index(_merge(o)), o.words.result, o.words.gives_float) for o in words],
            np.int64,
        ).reshape(len(words), 3)
        self._windows = served.windows

    def maker(self, number: int) -> Any:
        """What makes a value of the word of a feature; None if the word is the value."""
        return next(maker for feature, maker, _ in self._words if feature == number)

    def features(self, found: Found, times: Sequence[int]) -> list[Column]:
        """A column for each feature, for the keys of `found`, each as of its own time."""
        served = self.served
        columns: list[Column | None] = [None] * len(served.features)
        if served.form == TILES:
            bounds, which = self._bounds(times)
            self._by_words(found, bounds, which, columns)
            for number, lane in enumerate(served.lanes):
                self._by_states(found, lane, number, bounds, which, columns)
        else:
            self._by_rows(found, times, columns)
        return [column for column in columns if column is not None]

    def _bounds(self, times: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each window for each time, (times, windows, 2); the time of each key."""
        several = dict.fromkeys(times)
        if len(several) <= 1:  # as a rule: all of them ask for what holds now
            which = np.zeros(len(times), np.int64)
        else:
            number = {time: place for place, time in enumerate(several)}
            which = np.array([number[time] for time in times], np.int64)
        effective = self.served.group.effective_times
        found: list[Any] = []
        for time in several:
            query: Any = effective(time)  # type: ignore[arg-type]
            for window in self._windows:
                found += window.bounds(query)
        return np.array(found, np.int64).reshape(-1, len(self._windows), 2), which

    def _by_words(
        self, found: Found, bounds: np.ndarray, which: np.ndarray, columns: list[Column | None]
    ) -> None:
        if not self._words:
            return
        words, all_states = _evaluate(
            found.data, found.at, bounds, which, self._merges, self._results
        )
        results = words[: self._floats].view(np.float64).tolist()
        results += words[self._floats :].tolist()
        states = all_states.tolist()
        for (feature, maker, counts), values, state in zip(
            self._words, results, states, strict=True
        ):
            if OVERFLOW in state:
                name = self.served.features[feature].name
                raise DataError(f"{name}: a sum does not fit BIGINT; cast the values to DOUBLE")
            if maker is not None:
                values = [maker(value) for value in values]
            empty: list[bool] | None = None
            if counts:
                # A count is there for an empty window too: zero.
                if 0 in values:
                    empty = list(map(not_, values))
            elif EMPTY in state:
                values = [v if s else None for v, s in zip(values, state, strict=True)]
                empty = list(map(not_, state))
            columns[feature] = Column(values, empty)

    def _by_states(
        self,
        found: Found,
        lane: Lane,
        number: int,
        bounds: np.ndarray,
        which: np.ndarray,
        columns: list[Column | None],
    ) -> None:
        keys = found.at.size
        owner, within, levels, raw = found.lane(lane, number)
        start = _starts(found.data, found.at, owner, within)
        windows = list(dict.fromkeys(window for _, window, _ in lane.features))
        rows, queries = [], []
        limits = bounds[which[owner]]
        for place, window in enumerate(windows):
            inside = np.flatnonzero(
                (start >= limits[:, window, 0]) & (start < limits[:, window, 1])
            )
            rows.append(inside)
            queries.append(owner[inside] + place * keys)
        chosen = pa.array(np.concatenate(rows))
        states = lane.states.deserialise(raw).take(chosen)
        names = [QUERY, *(f"b{i}" for i in range(len(levels))), STATE]
        taken = [level.take(chosen) for level in levels]
        table = pa.table([pa.array(np.concatenate(queries)), *taken, states], names=names)
        results: dict[object, pa.Array] = {}
        for feature, window, lowered in lane.features:
            if lowered.function not in results:
                results[lowered.function] = combine_partials(lowered, [table], len(windows) * keys)
            result = results[lowered.function].slice(windows.index(window) * keys, keys)
            columns[feature] = _column(result, lowered.function.of_nothing)

    def _by_rows(self, found: Found, times: Sequence[int], columns: list[Column | None]) -> None:
        keys = found.at.size
        events = events_of(self.served, decode_rows(found))
        queries = QueryTimes(
            pa.table({"k0": np.arange(keys)}), np.array(times, np.int64), np.ones(keys, np.bool_)
        )
        results = group_features(self.served.group, events, queries)
        for number, (feature, result) in enumerate(zip(self.served.features, results, strict=True)):
            columns[number] = _column(result, feature.aggregation.function.of_nothing)


def _merge(one: WordFeature) -> tuple[int, int, int, int, int]:
    """What of the records a feature is made of: window, columns, part and its width."""
    part = one.words.part
    return one.window, one.count, one.column, int(part), part.width


def _column(result: pa.Array, of_nothing: int | None) -> Column:
    values = python_values(result)
    if of_nothing is not None:
        return Column(values, [value is None or value == of_nothing for value in values])
    return Column(values, [value is None for value in values] if None in values else None)


def python_values(array: pa.Array) -> list[Any]:
    """Values as Python's own: maps are dictionaries."""
    values = array.to_pylist()
    return [_plain(value, array.type) for value in values] if _has_maps(array.type) else values


def _has_maps(type_: pa.DataType) -> bool:
    return bool(has_type(type_, t.is_map))


def _plain(value: Any, type_: pa.DataType) -> Any:
    if value is None or not _has_maps(type_):
        return value
    if t.is_map(type_):
        return {key: _plain(item, type_.item_type) for key, item in value}
    if t.is_struct(type_):
        return {field.name: _plain(value[field.name], field.type) for field in type_}
    return [_plain(item, type_.value_type) for item in value]


def _maker(type_: pa.DataType) -> Any:
    """What makes a value of an int64; None if it is the value."""
    if t.is_boolean(type_):
        return bool
    if t.is_date32(type_):
        return lambda word: pa.scalar(word, pa.int32()).cast(type_).as_py()
    if t.is_timestamp(type_):
        return lambda word: pa.scalar(word, type_).as_py()
    return None


@njit(cache=True, nogil=True)
def _evaluate(data: Any, at: Any, bounds: Any, which: Any, merges: Any, lowered: Any) -> Any:
    """For each feature and key: a word, int64 or the bits of a double, and what became of it.

    `merges` are what is merged (see `_merge`), `lowered` for each feature which of them it is made
    of, how, and whether it is a double. Column c of the words of a record with n cells is at
    n * (1 + c) after its positions.
    """
    features, keys, windows = lowered.shape[0], at.size, bounds.shape[1]
    results = np.zeros((features, keys), np.int64)
    states = np.zeros((features, keys), np.uint8)
    first, last = np.zeros(windows, np.int64), np.zeros(windows, np.int64)
    parts = np.zeros((merges.shape[0], 3), np.int64)
    for k in range(keys):
        base, n = np.int64(0), np.int64(0)
        if at[k] >= 0:
            n = data[at[k] + COUNT]
            base = at[k] + HEAD + ((data[at[k]] >> 24) & 0xFF)
        for w in range(windows):
            for side in range(2):
                low, high = np.int64(0), n
                while low < high:
                    middle = (low + high) // 2
                    if data[base + middle] < bounds[which[k], w, side]:
                        low = middle + 1
                    else:
                        high = middle
                if side:
                    last[w] = low
                else:
                    first[w] = low
        for m in range(merges.shape[0]):
            w, kind, two = merges[m, 0], merges[m, 3], merges[m, 4] == 2
            counts, words = base + n * (1 + merges[m, 1]), base + n * (1 + merges[m, 2])
            total, a, b = np.int64(0), np.int64(0), np.int64(0)
            for i in range(first[w], last[w]):
                count = data[counts + i]
                if count == 0:
                    continue
                if kind != 0:
                    c, d = data[words + i], np.int64(0)
                    if two:
                        d = data[words + n + i]
                    a, b = merge_part(kind, total == 0, a, b, c, d)
                total += count
            if kind >= 6:  # EARLIEST, LATEST: the time comes first, then the value
                a = b
            parts[m, 0], parts[m, 1], parts[m, 2] = total, a, b
        for f in range(features):
            m = lowered[f, 0]
            word, double, state = lower_words(lowered[f, 1], parts[m, 0], parts[m, 1], parts[m, 2])
            results[f, k] = np.float64(double).view(np.int64) if lowered[f, 2] else word
            states[f, k] = state
    return results, states


@njit(cache=True, nogil=True)
def _starts(data: Any, at: Any, owner: Any, within: Any) -> Any:
    """The start of each cell, given its key and its number within the record."""
    found = np.empty(owner.size, np.int64)
    for i in range(owner.size):
        base = at[owner[i]]
        found[i] = data[base + HEAD + ((data[base] >> 24) & 0xFF) + within[i]]
    return found
