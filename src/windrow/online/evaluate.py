"""Features of records at a time: all requested keys at once.

Machine words are merged by one compiled function where they lie in the records. States are
decoded and combined lane by lane; rows that change are computed as in a backfill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from windrow.algebra.words import EMPTY, OVERFLOW, lower_words, merge_part
from windrow.errors import DataError
from windrow.features.compute.events import QueryTimes
from windrow.features.compute.features import group_features
from windrow.features.compute.partials import QUERY, STATE, combine_partials
from windrow.online.live_rows import decode_rows, events_of
from windrow.online.records import COUNT, HEAD, Found
from windrow.online.served import TILES, Lane, ServedGroup
from windrow.rows.types import has_type

t = pa.types


@dataclass(frozen=True)
class Column:
    """The values of one feature, as Python's."""

    values: list[Any]
    empty: list[bool]  # which have no value, or that of an empty window


class Evaluator:
    """Evaluates the features of one group; made once, used for every request."""

    def __init__(self, served: ServedGroup) -> None:
        self.served = served
        words = served.word_features
        self._window = np.array([w.window for w in words], np.int64)
        self._count = np.array([w.count for w in words], np.int64)
        self._column = np.array([w.column for w in words], np.int64)
        self._part = np.array([int(w.words.part) for w in words], np.int64)
        self._width = np.array([w.words.part.width for w in words], np.int64)
        self._result = np.array([int(w.words.result) for w in words], np.int64)
        self._windows = served.windows
        self._makers = [_maker(served.types[w.feature]) for w in words]

    def maker(self, number: int) -> Any:
        """What makes a value of the word of a feature; None if the word is the value."""
        words = self.served.word_features
        place = next(at for at, word in enumerate(words) if word.feature == number)
        return self._makers[place]

    def features(self, found: Found, at: int) -> list[Column]:
        """A column for each feature, for the keys of `found`, of queries at the time `at`."""
        served = self.served
        columns: list[Column | None] = [None] * len(served.features)
        if served.form == TILES:
            bounds = self._bounds(at)
            self._by_words(found, bounds, columns)
            for number, lane in enumerate(served.lanes):
                self._by_states(found, lane, number, bounds, columns)
        else:
            self._by_rows(found, at, columns)
        return [column for column in columns if column is not None]

    def _bounds(self, at: int) -> np.ndarray:
        """Start and end of each window, (windows, 2)."""
        query: Any = self.served.group.effective_times(at)  # type: ignore[arg-type]
        return np.array([window.bounds(query) for window in self._windows], np.int64)

    def _by_words(self, found: Found, bounds: np.ndarray, columns: list[Column | None]) -> None:
        features = self.served.word_features
        if not features:
            return
        integers, floats, states = _evaluate(
            found.data,
            found.at,
            bounds,
            self._window,
            self._count,
            self._column,
            self._part,
            self._width,
            self._result,
        )
        for place, feature in enumerate(features):
            state = states[place].tolist()
            if OVERFLOW in state:
                name = self.served.features[feature.feature].name
                raise DataError(f"{name}: a sum does not fit BIGINT; cast the values to DOUBLE")
            made = floats[place] if feature.words.gives_float else integers[place]
            values = made.tolist()
            maker = self._makers[place]
            if maker is not None:
                values = [maker(value) for value in values]
            if EMPTY in state:
                values = [v if s else None for v, s in zip(values, state, strict=True)]
            # A count is there for an empty window too: zero.
            counts = values if feature.words.result == 0 else state
            columns[feature.feature] = Column(values, [not one for one in counts])

    def _by_states(
        self,
        found: Found,
        lane: Lane,
        number: int,
        bounds: np.ndarray,
        columns: list[Column | None],
    ) -> None:
        keys = found.at.size
        owner, within, levels, raw = found.lane(lane, number)
        start = _starts(found.data, found.at, owner, within)
        windows = list(dict.fromkeys(window for _, window, _ in lane.features))
        rows, queries = [], []
        for place, window in enumerate(windows):
            inside = np.flatnonzero((start >= bounds[window, 0]) & (start < bounds[window, 1]))
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

    def _by_rows(self, found: Found, at: int, columns: list[Column | None]) -> None:
        keys = found.at.size
        events = events_of(self.served, decode_rows(found))
        queries = QueryTimes(
            pa.table({"k0": np.arange(keys)}), np.full(keys, at), np.ones(keys, np.bool_)
        )
        results = group_features(self.served.group, events, queries)
        for number, (feature, result) in enumerate(zip(self.served.features, results, strict=True)):
            columns[number] = _column(result, feature.aggregation.function.of_nothing)


def _column(result: pa.Array, of_nothing: int | None) -> Column:
    values = python_values(result)
    if of_nothing is None:
        return Column(values, [value is None for value in values])
    return Column(values, [value is None or value == of_nothing for value in values])


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
def _evaluate(
    data: Any,
    at: Any,
    bounds: Any,
    window: Any,
    count_column: Any,
    column: Any,
    part: Any,
    width: Any,
    result: Any,
) -> Any:
    """For each feature and key: an int64 and a float64, of which one is the result, and its state.

    Column c of the words of a record with n cells is at n * (1 + c) after its positions.
    """
    features, keys, windows = window.size, at.size, bounds.shape[0]
    integers = np.zeros((features, keys), np.int64)
    floats = np.zeros((features, keys), np.float64)
    states = np.zeros((features, keys), np.uint8)
    first, last = np.zeros(windows, np.int64), np.zeros(windows, np.int64)
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
                    if data[base + middle] < bounds[w, side]:
                        low = middle + 1
                    else:
                        high = middle
                if side:
                    last[w] = low
                else:
                    first[w] = low
        for f in range(features):
            w = window[f]
            counts, words = base + n * (1 + count_column[f]), base + n * (1 + column[f])
            total, a, b = np.int64(0), np.int64(0), np.int64(0)
            kind, two = part[f], width[f] == 2
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
            integers[f, k], floats[f, k], states[f, k] = lower_words(result[f], total, a, b)
    return integers, floats, states


@njit(cache=True, nogil=True)
def _starts(data: Any, at: Any, owner: Any, within: Any) -> Any:
    """The start of each cell, given its key and its number within the record."""
    found = np.empty(owner.size, np.int64)
    for i in range(owner.size):
        base = at[owner[i]]
        found[i] = data[base + HEAD + ((data[base] >> 24) & 0xFF) + within[i]]
    return found
