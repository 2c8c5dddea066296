"""What a group serves: its features as windows over lanes of states. A plan, as data.

Every aggregation reads one *lane*: the states of a column, under a condition, by buckets. Features
that read machine words (see `algebra.words`) share the parts of a column; the lanes of all others
hold partial states, shared by functions whose states are equal.

The plan is made from a group that is bound to its tables when it is uploaded, is stored beside the
records as JSON, and is all that a fetch needs: no definitions in Python, and no Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.algebra.aggregation import Aggregation, Feature
from windrow.algebra.evaluate import states_of
from windrow.algebra.functions import FUNCTIONS
from windrow.algebra.states import States
from windrow.algebra.windows import Window, WindowKind
from windrow.algebra.words import Part, Words
from windrow.features.compute.types import feature_type, input_type
from windrow.features.definitions import GroupBy
from windrow.features.inputs.layout import Layout
from windrow.online.grid import Grid
from windrow.online.types import schema_of, schema_text
from windrow.sources.definitions import EventSource, PreAggregatedSource, Source
from windrow.storage.names import digest
from windrow.time import DAY

t = pa.types
FORMAT = 2  # of records and of the plan's JSON: records of another format are never read
TILES, ROWS = "tiles", "rows"  # the forms of records


@dataclass(frozen=True)
class WordFeature:
    """A feature of machine words: its place, its window, the columns of its count and its part."""

    feature: int
    window: int
    count: int
    column: int
    words: Words


@dataclass(frozen=True)
class Lane:
    """States of an aggregation's input: those of `aggregation`, shared by all with equal states."""

    aggregation: Aggregation
    states: States
    levels: tuple[pa.DataType, ...]
    grid: Grid  # of the windows that read it
    features: tuple[tuple[int, int, States], ...]  # place, window, and how each is lowered


@dataclass(frozen=True)
class WordParts:
    """The columns of machine words of a cell, as the compiled code takes them."""

    inputs: tuple[tuple[str, str | None], ...]  # column and condition of each part
    parts: np.ndarray
    columns: np.ndarray
    widths: np.ndarray
    counts: np.ndarray  # for each part the column of its count

    @property
    def width(self) -> int:
        return int(self.widths.sum())


@dataclass(frozen=True)
class ServedGroup:
    """A group as it is served. Positions of its records are in the order of its sources."""

    group: GroupBy
    layout: Layout
    max_staleness: int | None = None
    refuses_stale: bool = False

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def form(self) -> str:
        return ROWS if self.layout.changing else TILES

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.group.keys)

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        return self.layout.key_types

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(feature.name for feature in self.features)

    @property
    def sources(self) -> tuple[str, ...]:
        """What positions are counted of: the names of its sources."""
        return tuple(source.name for source in self.group.sources)

    @functools.cached_property
    def digest(self) -> int:
        """Tells definitions apart, in every record."""
        return int(digest(FORMAT, self.to_json())[:15], 16)

    @functools.cached_property
    def features(self) -> tuple[Feature, ...]:
        return self.group.features

    @functools.cached_property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the features."""
        inputs = self.layout.input_schema
        return tuple(feature_type(f.aggregation, inputs, f.name) for f in self.features)

    @functools.cached_property
    def windows(self) -> tuple[Window, ...]:
        return tuple(dict.fromkeys(f.window for f in self.features))

    @property
    def refresh(self) -> int:
        return self.group.refresh if self.group.accuracy == "snapshot" else 0

    @functools.cached_property
    def grid(self) -> Grid:
        return Grid.of(self.windows, self.refresh)

    @property
    def reach(self) -> int | None:
        """How far back windows reach, in milliseconds; None: for ever."""
        if any(w.kind is WindowKind.LIFETIME for w in self.windows):
            return None
        return max(w.length + w.hop for w in self.windows) + self.refresh

    def _words(self, aggregation: Aggregation) -> Words | None:
        type_ = self.layout.input_schema.field(aggregation.column).type
        if aggregation.bucket is not None or t.is_list(type_) or t.is_map(type_):
            return None
        return aggregation.function.words(type_)

    @functools.cached_property
    def word_parts(self) -> WordParts:
        """The parts that features share: of each input, first what they need, then its count."""
        wanted: dict[tuple[str, str | None], dict[Part, None]] = {}
        for one in self.group.aggregations:
            words = self._words(one)
            if words is not None:
                needed = wanted.setdefault((one.column, one.condition), {})
                if words.part is not Part.COUNT:
                    needed[words.part] = None
        inputs, kinds = [], []
        for source, needed in wanted.items():
            for part in (*needed, Part.COUNT):
                inputs.append(source)
                kinds.append(part)
        widths = np.array([part.width for part in kinds], np.int64)
        columns = np.cumsum(widths) - widths
        at = {i: c for i, p, c in zip(inputs, kinds, columns, strict=True) if p is Part.COUNT}
        counts = np.array([at[one] for one in inputs], np.int64)
        parts = np.array([int(part) for part in kinds], np.int64)
        return WordParts(tuple(inputs), parts, columns, widths, counts)

    @functools.cached_property
    def word_features(self) -> tuple[WordFeature, ...]:
        found = []
        parts = self.word_parts
        places = {
            (source, Part(kind)): (int(column), int(count))
            for source, kind, column, count in zip(
                parts.inputs, parts.parts, parts.columns, parts.counts, strict=True
            )
        }
        for number, feature in enumerate(self.features):
            one = feature.aggregation
            words = self._words(one)
            if words is not None:
                column, count = places[(one.column, one.condition), words.part]
                window = self.windows.index(feature.window)
                found.append(WordFeature(number, window, count, column, words))
        return tuple(found)

    @functools.cached_property
    def lanes(self) -> tuple[Lane, ...]:
        inputs = self.layout.input_schema
        found: dict[object, list[tuple[int, Feature, States]]] = {}
        for number, feature in enumerate(self.features):
            one = feature.aggregation
            if self._words(one) is not None:
                continue
            states = states_of(one, input_type(inputs.field(one.column).type))
            key = (states.header.written, one.column, one.bucket, one.condition)
            found.setdefault(key, []).append((number, feature, states))
        lanes = []
        for readers in found.values():
            one, states = readers[0][1].aggregation, readers[0][2]
            levels = []
            if one.bucket is not None:
                levels.append(inputs.field(one.bucket).type)
            if t.is_map(inputs.field(one.column).type):
                levels.append(inputs.field(one.column).type.key_type)
            grid = Grid.of((f.window for _, f, _ in readers), self.refresh)
            places = tuple((n, self.windows.index(f.window), s) for n, f, s in readers)
            lanes.append(Lane(one, states, tuple(levels), grid, places))
        return tuple(lanes)

    def to_json(self) -> dict[str, Any]:
        """The plan as it is stored; `from_json` reads it in any process."""
        group, layout = self.group, self.layout
        return {
            "format": FORMAT,
            "name": group.name,
            "keys": list(group.keys),
            "key_types": schema_text(
                [(k, v) for k, v in zip(group.keys, layout.key_types, strict=True)]
            ),
            "inputs": schema_text(list(zip(layout.inputs, layout.input_types, strict=True))),
            "conditions": list(layout.conditions),
            "changing": layout.changing,
            "several": layout.several,
            "accuracy": group.accuracy,
            "aggregations": [_aggregation_json(a) for a in group.aggregations],
            "sources": [_source_json(source) for source in group.sources],
            "max_staleness": self.max_staleness,
            "refuses_stale": self.refuses_stale,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> ServedGroup:
        keys, inputs = schema_of(found["key_types"]), schema_of(found["inputs"])
        layout = Layout(
            tuple(keys.types),
            tuple(inputs.names),
            tuple(inputs.types),
            tuple(found["conditions"]),
            found["changing"],
            found["several"],
        )
        group = GroupBy(
            name=found["name"],
            source=[_source_of(source) for source in found["sources"]],
            keys=found["keys"],
            aggregations=[_aggregation_of(a) for a in found["aggregations"]],
            accuracy=found["accuracy"],
        )
        return ServedGroup(group, layout, found["max_staleness"], found["refuses_stale"])

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        keys = ", ".join(self.group.keys)
        yield f"serve {self.name}: {len(self.features)} features by {keys}"
        if self.form == ROWS:
            yield "  record   rows, since they change or become known late"
            return
        reach = "for ever" if self.reach is None else f"{self.reach / DAY:g} days back"
        yield f"  record   tiles, {reach}"
        if self.word_features:
            count = len(self.word_features)
            yield f"  words    {self.word_parts.width} of each cell, for {count} features"
        for lane in self.lanes:
            names = ", ".join(self.features[n].name for n, _, _ in lane.features)
            yield f"  states   for {names}"


def _aggregation_json(one: Aggregation) -> dict[str, Any]:
    windows = [[w.text, w.length, w.hop, w.kind.value] for w in one.windows]
    name, *parameters = one.function.identity
    return {
        "function": name,
        "parameters": parameters,
        "column": one.column,
        "windows": windows,
        "bucket": one.bucket,
        "condition": one.condition,
        "alias": one.alias,
    }


def _aggregation_of(found: Mapping[str, Any]) -> Aggregation:
    parameters = [tuple(p) if isinstance(p, list) else p for p in found["parameters"]]
    windows = tuple(
        Window(text, length, hop, WindowKind(kind)) for text, length, hop, kind in found["windows"]
    )
    return Aggregation(
        FUNCTIONS[found["function"]](*parameters),
        found["column"],
        windows,
        found["bucket"],
        found["condition"],
        found["alias"],
    )


def _source_json(source: Source) -> dict[str, Any]:
    every = source.every if isinstance(source, PreAggregatedSource) else None
    return {
        "name": source.name,
        "time": source.time,
        "every": every,
        "select": [list(pair) for pair in source.selected],
        "where": source.where,
    }


def _source_of(found: Mapping[str, Any]) -> Source:
    """A source that has lost its tables: its name and its times are what is served."""
    select = dict(found["select"]) or None
    common = {"table": "served", "time": found["time"], "select": select, "where": found["where"]}
    if found["every"] is not None:
        return PreAggregatedSource(found["name"], every=found["every"], **common)
    return EventSource(found["name"], **common)


def travelling(served: ServedGroup) -> ServedGroup:
    """The same for tasks: without tables, which may be DataFrames."""
    return ServedGroup.from_json(served.to_json())
