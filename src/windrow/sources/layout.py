"""The columns of a folder of Parquet files, as Spark would type them, found without Spark.

Spark lists the folder and reads a footer for every table it is shown, which takes longer than
planning all the rest. Where the answer is plain, it is found here, from the same files; where
there is any doubt (files that differ, nested or unsigned columns, folders whose names are not
days), the answer is None, and Spark decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.errors import SchemaError
from windrow.rows.types import canonical_type, has_type
from windrow.sources.delta import delta_content, is_delta
from windrow.sources.files import ParquetFiles, folder_columns, partition_values
from windrow.sources.tables import is_path
from windrow.storage.store import Store
from windrow.time import is_day

_SUFFIXES = (".parquet", ".parq")


@dataclass(frozen=True)
class Listed:
    """The Parquet files of a table beneath `root`; a Delta table's log declares their columns."""

    root: Store
    uris: tuple[str, ...]
    declared: pa.Schema | None = None
    partitions: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Columns that the files' folders name."""
        if self.declared is not None:
            return self.partitions
        return folder_columns(self.uris, self.root.uri)


def list_parquet(table: Any, what: str, options: Mapping[str, str] | None) -> Listed | None:
    """The files of a table that is a path to Parquet files, or a Delta table."""
    if not isinstance(table, str | os.PathLike) or not is_path(os.fspath(table)):
        return None
    store = Store.at(os.fspath(table), options)
    if store.is_file():
        uris = [store.uri]
    elif is_delta(store):
        found = delta_content(store, what)
        return Listed(store, found.files, found.schema, found.partitions)
    else:
        uris = [f"{store.uri}/{name}" for name in store.names() if not is_hidden(name)]
    return Listed(store, tuple(uris)) if are_parquet(uris) else None


def are_parquet(uris: Sequence[str]) -> bool:
    """Whether there are files, and all of them are Parquet by their names."""
    return bool(uris) and all(uri.lower().endswith(_SUFFIXES) for uri in uris)


def is_hidden(name: str) -> bool:
    """Files that Spark leaves out, too: of logs, and of writers that are at work."""
    parts = name.split("/")
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in parts)


def spark_schema(parquet: ParquetFiles, listed: Listed) -> pa.Schema | None:
    """The columns as Spark reads them, as Arrow; None if only Spark can tell."""
    if listed.declared is not None and not parquet.files:
        return listed.declared
    first = parquet.footers[0].schema
    if any(not f.schema.equals(first) or f.uncertain for f in parquet.footers):
        return None
    if listed.declared is not None:
        own = [field for field in listed.declared if field.name not in listed.partitions]
        return listed.declared if _same(own, list(first)) else None
    fields = [_field(field) for field in first]
    if any(field is None for field in fields):
        return None
    days = _day_columns([file.uri for file in parquet.files], listed.root)
    names = [field.name.lower() for field in first] + [name.lower() for name in days or ()]
    if days is None or len(set(names)) < len(names):
        return None
    return pa.schema([*fields, *(pa.field(name, pa.date32()) for name in days)])


def _same(declared: Sequence[pa.Field], found: Sequence[pa.Field]) -> bool:
    """Whether files have the columns that a log declares, nested ones in the same form."""
    return len(declared) == len(found) and all(
        one.name == other.name and _is_declared(one.type, other)
        for one, other in zip(declared, found, strict=True)
    )


def _is_declared(type_: pa.DataType, found: pa.Field) -> bool:
    if not pa.types.is_nested(type_):
        known = _field(found)
        return known is not None and known.type == type_
    if has_type(found.type, lambda one: pa.types.is_timestamp(one) and one.unit == "ns"):
        return False  # as Arrow reads INT96, which holds more years than that
    try:
        return bool(canonical_type(type_, "") == canonical_type(found.type, ""))
    except SchemaError:
        return False


def _field(field: pa.Field) -> pa.Field | None:
    type_ = field.type
    t = pa.types
    if t.is_timestamp(type_) and type_.unit in ("ms", "us"):
        return pa.field(field.name, pa.timestamp("us", "UTC" if type_.tz else None))
    same = (
        t.is_boolean(type_)
        or t.is_signed_integer(type_)
        or t.is_float32(type_)
        or t.is_float64(type_)
        or t.is_string(type_)
        or t.is_binary(type_)
        or t.is_date32(type_)
        or t.is_decimal128(type_)
    )
    return pa.field(field.name, type_) if same else None


def _day_columns(uris: Sequence[str], root: Store) -> list[str] | None:
    """Columns that folders beneath the root name, if all of them hold days."""
    names: list[str] | None = None
    for uri in uris:
        found = partition_values(uri[len(root.uri) :])
        if names is not None and list(found) != names:
            return None
        names = list(found)
        for value in found.values():
            if not is_day(value):
                return None
    return names or []
