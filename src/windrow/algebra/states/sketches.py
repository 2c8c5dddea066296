"""Partial states that are Apache DataSketches: percentiles, unique counts, frequent values.

A sketch is filled and merged one at a time, by the library; what enters it is prepared over whole
columns. Values enter in a form that is the same in every process: as doubles, by their stable
hash, or as text.

An empty sketch is stored as no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasketches import (
    frequent_items_error_type,
    frequent_strings_sketch,
    hll_sketch,
    hll_union,
    kll_doubles_sketch,
    tgt_hll_type,
)

from windrow.algebra.aggregation import Aggregation
from windrow.algebra.quantiles import KLL_K
from windrow.algebra.ranges import list_offsets
from windrow.algebra.states.codec import element_bytes
from windrow.algebra.states.values import Counts, list_type, not_invertible
from windrow.algebra.states.wide import group_rows
from windrow.rows.hashing import hash_keys
from windrow.rows.lists import list_parts
from windrow.rows.ordering import exact
from windrow.rows.types import canonical_values

t = pa.types
HLL_LG_K = 12  # relative standard error about 1.6 %; a few hundred values are counted exactly
_SMALLEST_LG_MAP = 10  # 768 values without error


def _by_group(groups: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each group that has rows, and these."""
    order, starts = group_rows(groups, count)
    for group in np.flatnonzero(np.diff(starts)).tolist():
        yield group, order[starts[group] : starts[group + 1]]


@dataclass(frozen=True)
class Sketches:
    """What the three kinds share: how states of a group are merged."""

    aggregation: Aggregation
    value_type: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return pa.struct([pa.field("sketch", pa.binary())])

    @property
    def invertible(self) -> bool:
        return False

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        held = states.flatten()[0].to_pylist()
        sketches = [b""] * count
        for group, rows in _by_group(groups, count):
            several = [held[row] for row in rows.tolist() if held[row]]
            if several:
                sketches[group] = several[0] if len(several) == 1 else self._merged(several)
        return self._made(sketches, states, groups, count)

    def _made(
        self, sketches: list[bytes], states: pa.Array, groups: np.ndarray, count: int
    ) -> pa.Array:
        column = pa.array(sketches, pa.binary())
        return pa.StructArray.from_arrays([column], fields=list(self.type))

    def _merged(self, sketches: list[bytes]) -> bytes:
        raise NotImplementedError

    def _opened(self, sketch: bytes) -> Any:
        raise NotImplementedError

    def subtract(self, states: pa.Array, others: pa.Array) -> pa.Array:
        raise not_invertible(self.aggregation)

    def check(self, states: pa.Array) -> bool:
        """Whether the library can read the sketches."""
        try:
            for sketch in states.flatten()[0].to_pylist():
                if sketch:
                    self._opened(sketch)
        except (RuntimeError, ValueError, IndexError, MemoryError):
            return False
        return True


@dataclass(frozen=True)
class Percentiles(Sketches):
    """A KLL sketch of the numbers; NaN, larger than all of them, is counted apart."""

    @property
    def type(self) -> pa.DataType:
        return pa.struct([pa.field("nans", pa.int64()), pa.field("sketch", pa.binary())])

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        nan = np.isnan(floats)
        nans = np.bincount(groups[nan], minlength=count)
        numbers, among = floats[~nan], groups[~nan]
        sketches = [b""] * count
        for group, rows in _by_group(among, count):
            sketch = kll_doubles_sketch(KLL_K)
            sketch.update(numbers[rows])
            sketches[group] = sketch.serialize()
        return self._struct(nans, sketches)

    def _struct(self, nans: np.ndarray, sketches: list[bytes]) -> pa.Array:
        columns = [pa.array(nans, pa.int64()), pa.array(sketches, pa.binary())]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def combine(self, states: pa.Array, groups: np.ndarray, count: int) -> pa.Array:
        nans, sketches = states.flatten()
        total = np.zeros(count, np.int64)
        np.add.at(total, groups, nans.to_numpy(zero_copy_only=False))
        only = pa.StructArray.from_arrays([sketches], names=["sketch"])
        merged = super().combine(only, groups, count)
        return self._struct(total, merged.field("sketch").to_pylist())

    def _made(
        self, sketches: list[bytes], states: pa.Array, groups: np.ndarray, count: int
    ) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array(sketches, pa.binary())], names=["sketch"])

    def _opened(self, sketch: bytes) -> Any:
        return kll_doubles_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = kll_doubles_sketch(KLL_K)
        for sketch in sketches:
            total.merge(self._opened(sketch))
        return bytes(total.serialize())

    def lower(self, states: pa.Array) -> pa.Array:
        nans, sketches = (column.to_pylist() for column in states.flatten())
        fractions = np.asarray(self.aggregation.percentiles)
        found: list[np.ndarray] = []
        lengths = np.zeros(len(states), np.int64)
        for i, (nan, data) in enumerate(zip(nans, sketches, strict=True)):
            if data:
                found.append(_quantiles(self._opened(data), nan, fractions))
            elif nan:
                found.append(np.full(fractions.size, np.nan))
            else:
                continue
            lengths[i] = fractions.size
        flat = np.concatenate(found) if found else np.zeros(0)
        return pa.ListArray.from_arrays(
            list_offsets(lengths), pa.array(flat), type=list_type(pa.float64())
        )

    def check(self, states: pa.Array) -> bool:
        only = pa.StructArray.from_arrays([states.flatten()[1]], names=["sketch"])
        return super().check(only)


def _quantiles(sketch: Any, nans: int, fractions: np.ndarray) -> np.ndarray:
    # Ranks among numbers are those among all, scaled; what lies above is NaN. In the words of
    # `quantiles.quantiles`, so that both round alike.
    numbers = 1 - nans / (sketch.n + nans)
    within = np.minimum(fractions / numbers, 1.0)
    found = np.asarray(sketch.get_quantiles(within.tolist()))
    return np.where(fractions > numbers, np.nan, found)


@dataclass(frozen=True)
class Uniques(Sketches):
    """A HyperLogLog sketch of the values' stable hashes; merging is idempotent."""

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        hashes = hash_keys([canonical_values(values)])
        order = np.lexsort((hashes, groups))
        hashes, sorted_groups = hashes[order], groups[order]
        new = np.ones(order.size, np.bool_)
        new[1:] = (hashes[1:] != hashes[:-1]) | (sorted_groups[1:] != sorted_groups[:-1])
        hashes, sorted_groups = hashes[new], sorted_groups[new]
        sketches = [b""] * count
        for group, rows in _by_group(sorted_groups, count):
            sketch = hll_sketch(HLL_LG_K, tgt_hll_type.HLL_4)
            for value in hashes[rows].tolist():
                sketch.update(value)
            sketches[group] = sketch.serialize_compact()
        return self._made(sketches, values, groups, count)

    def _opened(self, sketch: bytes) -> Any:
        return hll_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = hll_union(HLL_LG_K)
        for sketch in sketches:
            total.update(self._opened(sketch))
        return bytes(total.get_result(tgt_hll_type.HLL_4).serialize_compact())

    def lower(self, states: pa.Array) -> pa.Array:
        estimates = [
            round(self._opened(sketch).get_estimate()) if sketch else 0
            for sketch in states.flatten()[0].to_pylist()
        ]
        return pa.array(estimates, pa.int64())


@dataclass(frozen=True)
class Frequents(Sketches):
    """A frequent items sketch of the values as text, with room for four times k of them."""

    @property
    def _lg_map(self) -> int:
        assert self.aggregation.k is not None
        # A map of 2**lg slots holds 3/4 of them.
        return max(_SMALLEST_LG_MAP, (4 * self.aggregation.k * 4 // 3).bit_length())

    def lift(self, values: pa.Array, times: np.ndarray, groups: np.ndarray, count: int) -> pa.Array:
        counted = Counts(self.aggregation, self.value_type).lift(values, times, groups, count)
        distinct, counts = counted.flatten()
        starts, elements = list_parts(distinct)
        texts = _as_text(elements)
        weights = list_parts(counts)[1].to_pylist()
        sketches = [b""] * count
        for group in np.flatnonzero(np.diff(starts)).tolist():
            sketch = frequent_strings_sketch(self._lg_map)
            for i in range(int(starts[group]), int(starts[group + 1])):
                sketch.update(texts[i], weights[i])
            sketches[group] = sketch.serialize()
        return self._made(sketches, values, groups, count)

    def _opened(self, sketch: bytes) -> Any:
        return frequent_strings_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = frequent_strings_sketch(self._lg_map)
        for sketch in sketches:
            total.merge(self._opened(sketch))
        return bytes(total.serialize())

    def lower(self, states: pa.Array) -> pa.Array:
        texts: list[str] = []
        counts: list[int] = []
        owner: list[int] = []
        kind = frequent_items_error_type.NO_FALSE_NEGATIVES
        for i, data in enumerate(states.flatten()[0].to_pylist()):
            if data:
                items = self._opened(data).get_frequent_items(kind)
                texts += [item[0] for item in items]
                counts += [item[1] for item in items]
                owner += [i] * len(items)
        values = _from_text(texts, self.value_type)
        numbers, groups = np.array(counts, np.int64), np.array(owner, np.int64)
        order = np.lexsort((exact(values), -numbers, groups))
        sizes = np.bincount(groups, minlength=len(states))
        within = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        k = self.aggregation.k or 0
        order = order[within < k]
        return pa.MapArray.from_arrays(
            list_offsets(np.minimum(sizes, k)),
            values.take(pa.array(order)),
            pa.array(numbers[order]),
        )


def _as_text(values: pa.Array) -> list[str]:
    """Strings as they are; other values by their little-endian bytes, each byte a character."""
    if t.is_string(values.type):
        return list(values.to_pylist())
    if t.is_binary(values.type):
        return [value.decode("latin-1") for value in values.to_pylist()]
    pieces = element_bytes(values, np.arange(len(values) + 1))
    return [piece.decode("latin-1") for piece in pieces.to_pylist()]


def _from_text(texts: list[str], type_: pa.DataType) -> pa.Array:
    if t.is_string(type_):
        return pa.array(texts, type_)
    pieces = [text.encode("latin-1") for text in texts]
    if t.is_binary(type_):
        return pa.array(pieces, type_)
    raw = b"".join(pieces)
    if t.is_boolean(type_):
        return pa.array(np.frombuffer(raw, np.uint8) != 0)
    return pa.Array.from_buffers(type_, len(texts), [None, pa.py_buffer(raw)])
