"""How columns of a Parquet file are encoded, by what some of their rows look like.

A dictionary pays only where few values repeat: on others it makes writing three times as slow, and
reading too. Other wide integers and times are written as differences, which takes less time and
space than compressing them; all else is compressed where that makes it smaller.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_SAMPLE = 4_096  # rows that are tried
_WORTH = 0.9  # of its size, at most, that a compressed column has
_FEW = 8  # rows for each distinct value, from which on a dictionary pays


def encoding(rows: pa.Table) -> dict[str, Any]:
    """Options of a writer of `rows`, and of more like them."""
    plain, few, wide = set(), [], []
    for path, values in _scalars(rows.slice(0, _SAMPLE)):
        if _repeats(values):
            few.append(path)
        elif pa.types.is_timestamp(values.type) or pa.types.is_int64(values.type):
            wide.append(path)
        elif not _shrinks(values):
            plain.add(path)
    plain.update(wide)
    leaves = pq_leaves(rows.schema)
    return {
        "compression": {leaf: "none" if leaf in plain else "lz4" for leaf in leaves},
        "use_dictionary": few or False,
        "column_encoding": dict.fromkeys(wide, "DELTA_BINARY_PACKED") or None,
    }


def pq_leaves(schema: pa.Schema) -> list[str]:
    """Paths of the Parquet leaf columns of `schema`."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    leaves = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [leaves.column(i).path for i in range(len(leaves))]


def _scalars(sample: pa.Table) -> list[tuple[str, pa.Array]]:
    """Columns and fields of structs that are not nested, by their paths."""
    found: list[tuple[str, pa.Array]] = []

    def look(path: str, values: pa.Array) -> None:
        if pa.types.is_struct(values.type):
            for field, child in zip(values.type, values.flatten(), strict=True):
                look(f"{path}.{field.name}", child)
        elif not pa.types.is_nested(values.type):
            found.append((path, values))

    for name, column in zip(sample.column_names, sample.combine_chunks().columns, strict=True):
        if column.num_chunks:
            look(name, column.chunk(0))
    return found


def _repeats(values: pa.Array) -> bool:
    if pa.types.is_dictionary(values.type):
        return True
    if values.null_count * 2 > len(values):  # what is left of it is hardly worth anything
        return False
    return bool(pc.count_distinct(values, mode="all").as_py() * _FEW <= len(values))


def _shrinks(values: pa.Array) -> bool:
    if not pa.types.is_primitive(values.type) or pa.types.is_boolean(values.type):
        return True
    values = pc.drop_null(values)
    width = values.type.bit_width // 8
    data = values.buffers()[1]
    if data is None or not len(values):
        return True
    data = data.slice(values.offset * width, len(values) * width)
    return bool(len(pa.compress(data, codec="lz4", asbytes=True)) < _WORTH * data.size)
