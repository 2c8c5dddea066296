"""Names with Arrow types, as text in JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import pyarrow as pa


def schema_text(fields: Iterable[tuple[str, pa.DataType]]) -> str:
    return base64.b64encode(pa.schema(list(fields)).serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
