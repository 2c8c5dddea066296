"""Partial states that are Apache DataSketches: percentiles, unique counts, frequent values.

A sketch is filled and merged one at a time, by the library; what enters it is prepared over whole
columns. Values enter in a form that is the same in every process: as doubles, by their stable
hash, or as text.

An empty sketch is stored as no bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasketches import (
    frequent_strings_sketch,
    hll_sketch,
    hll_union,
    kll_doubles_sketch,
    tgt_hll_type,
)

from windrow.algebra.arrays import as_float64
from windrow.algebra.codec import element_bytes
from windrow.algebra.grouping import group_rows, group_sums
from windrow.algebra.kinds.kind import Columns, Held, Kind, Rows
from windrow.algebra.kinds.values import Counts
from windrow.algebra.quantiles import KLL_K
from windrow.rows.hashing import hash_keys
from windrow.rows.lists import list_parts
from windrow.rows.types import canonical_values

t = pa.types
SKETCH, NANS = "sketch", "nans"
HLL_LG_K = 12  # relative standard error about 1.6 %; a few hundred values are counted exactly
_SMALLEST_LG_MAP = 10  # 768 values without error
_REPEATED = 256  # a value that occurs more often than that enters a sketch by doubling


def _by_group(groups: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray]]:
    """Each group that has rows, and these."""
    order, starts = group_rows(groups, count)
    for group in np.flatnonzero(np.diff(starts)).tolist():
        yield group, order[starts[group] : starts[group + 1]]


@dataclass(frozen=True)
class Sketch(Kind):
    """What the three kinds share: how sketches of a group are merged."""

    value_type: pa.DataType

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(SKETCH, pa.binary())]

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        held = columns[-1].to_pylist()
        sketches = [b""] * count
        for group, rows in _by_group(groups, count):
            several = [held[row] for row in rows.tolist() if held[row]]
            if several:
                sketches[group] = several[0] if len(several) == 1 else self._merged(several)
        return [pa.array(sketches, pa.binary())]

    @abstractmethod
    def opened(self, sketch: bytes) -> Any:
        """The library's object."""

    @abstractmethod
    def _merged(self, sketches: list[bytes]) -> bytes: ...

    @abstractmethod
    def _counts(self, sketch: Any) -> int | None:
        """How many values have entered the sketch; None if it does not know."""

    def is_sound(self, held: Held) -> bool:
        """Whether the library can read the sketches, and they have as many values as they say."""
        counts = held.count.tolist()
        nans = held.integers(NANS).tolist() if NANS in held.columns else [0] * len(counts)
        sketches = held.columns[SKETCH].to_pylist()
        try:
            for data, count, nan in zip(sketches, counts, nans, strict=True):
                entered = self._counts(self.opened(data)) if data else 0
                if (entered is None and count < 1) or entered not in (None, count - nan):
                    return False
        except (RuntimeError, ValueError, IndexError, MemoryError):
            return False
        return True


@dataclass(frozen=True)
class Percentiles(Sketch):
    """A KLL sketch of the numbers; NaN, larger than all of them, is counted apart."""

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(NANS, pa.int64()), pa.field(SKETCH, pa.binary())]

    def lift(self, rows: Rows, count: int) -> Columns:
        floats = as_float64(rows.values)
        diffs = np.ones(floats.size, np.int64) if rows.diffs is None else rows.diffs
        nan = np.isnan(floats)
        nans = group_sums(diffs[nan], rows.groups[nan], count)
        numbers, often, groups = floats[~nan], diffs[~nan], rows.groups[~nan]
        sketches = [b""] * count
        for group, at in _by_group(groups, count):
            sketch = kll_doubles_sketch(KLL_K)
            few = at[often[at] <= _REPEATED]
            if few.size:
                sketch.update(np.repeat(numbers[few], often[few]))
            for row in at[often[at] > _REPEATED].tolist():
                _enter_often(sketch, float(numbers[row]), int(often[row]))
            sketches[group] = sketch.serialize()
        return [pa.array(nans), pa.array(sketches, pa.binary())]

    def combine(self, columns: Columns, groups: np.ndarray, count: int) -> Columns:
        nans = group_sums(columns[0].to_numpy(zero_copy_only=False), groups, count)
        return [pa.array(nans), *super().combine(columns, groups, count)]

    def opened(self, sketch: bytes) -> Any:
        return kll_doubles_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = kll_doubles_sketch(KLL_K)
        for sketch in sketches:
            total.merge(self.opened(sketch))
        return bytes(total.serialize())

    def _counts(self, sketch: Any) -> int | None:
        return int(sketch.n)


def _enter_often(sketch: Any, value: float, often: int) -> None:
    """Enter a value that occurs very often: sketches of 1, 2, 4, ... of it are merged."""
    doubled = kll_doubles_sketch(KLL_K)
    doubled.update(value)
    while often:
        if often & 1:
            sketch.merge(doubled)
        often >>= 1
        if often:
            doubled.merge(kll_doubles_sketch.deserialize(doubled.serialize()))


@dataclass(frozen=True)
class Uniques(Sketch):
    """A HyperLogLog sketch of the values' stable hashes; merging is idempotent."""

    def lift(self, rows: Rows, count: int) -> Columns:
        groups = rows.groups
        hashes = hash_keys([canonical_values(rows.values)])
        order = np.lexsort((hashes, groups))
        hashes, groups = hashes[order], groups[order]
        new = np.ones(order.size, np.bool_)
        new[1:] = (hashes[1:] != hashes[:-1]) | (groups[1:] != groups[:-1])
        hashes, groups = hashes[new], groups[new]
        sketches = [b""] * count
        for group, at in _by_group(groups, count):
            sketch = hll_sketch(HLL_LG_K, tgt_hll_type.HLL_4)
            for value in hashes[at].tolist():
                sketch.update(value)
            sketches[group] = sketch.serialize_compact()
        return [pa.array(sketches, pa.binary())]

    def opened(self, sketch: bytes) -> Any:
        return hll_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = hll_union(HLL_LG_K)
        for sketch in sketches:
            total.update(self.opened(sketch))
        return bytes(total.get_result(tgt_hll_type.HLL_4).serialize_compact())

    def _counts(self, sketch: Any) -> int | None:
        return None


@dataclass(frozen=True)
class Frequents(Sketch):
    """A frequent items sketch of the values as text, with room for four times k of them."""

    k: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return (self.k,)

    @property
    def _lg_map(self) -> int:
        # A map of 2**lg slots holds 3/4 of them.
        return max(_SMALLEST_LG_MAP, (4 * self.k * 4 // 3).bit_length())

    def lift(self, rows: Rows, count: int) -> Columns:
        distinct, counts = Counts(self.value_type).lift(rows, count)
        starts, elements = list_parts(distinct)
        texts = _as_text(elements)
        weights = list_parts(counts)[1].to_pylist()
        sketches = [b""] * count
        for group in np.flatnonzero(np.diff(starts)).tolist():
            sketch = frequent_strings_sketch(self._lg_map)
            for i in range(int(starts[group]), int(starts[group + 1])):
                sketch.update(texts[i], weights[i])
            sketches[group] = sketch.serialize()
        return [pa.array(sketches, pa.binary())]

    def opened(self, sketch: bytes) -> Any:
        return frequent_strings_sketch.deserialize(sketch)

    def _merged(self, sketches: list[bytes]) -> bytes:
        total = frequent_strings_sketch(self._lg_map)
        for sketch in sketches:
            total.merge(self.opened(sketch))
        return bytes(total.serialize())

    def _counts(self, sketch: Any) -> int | None:
        return int(sketch.total_weight)


def _as_text(values: pa.Array) -> list[str]:
    """Strings as they are; other values by their little-endian bytes, each byte a character."""
    if t.is_string(values.type):
        return list(values.to_pylist())
    if t.is_binary(values.type):
        return [value.decode("latin-1") for value in values.to_pylist()]
    pieces = element_bytes(values, np.arange(len(values) + 1))
    return [piece.decode("latin-1") for piece in pieces.to_pylist()]


def values_of_text(texts: list[str], type_: pa.DataType) -> pa.Array:
    """The values that entered a sketch of frequent values as these texts."""
    if t.is_string(type_):
        return pa.array(texts, type_)
    pieces = [text.encode("latin-1") for text in texts]
    if t.is_binary(type_):
        return pa.array(pieces, type_)
    raw = b"".join(pieces)
    if t.is_boolean(type_):
        return pa.array(np.frombuffer(raw, np.uint8) != 0)
    return pa.Array.from_buffers(type_, len(texts), [None, pa.py_buffer(raw)])
