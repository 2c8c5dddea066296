"""Delta tables that delta-rs cannot create by itself: those with a TIMESTAMP_NTZ within a map.

Such a table has to declare the feature `timestampNtz`. delta-rs declares it for columns, lists and
structs, but does not look into maps: it commits a table that no reader opens, itself included. The
first commit of such a table is therefore written here.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, TableFeatures, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from windrow.errors import SchemaError, StorageError, StorageUnavailableError
from windrow.storage.failures import failure
from windrow.storage.names import new_id
from windrow.storage.store import Store

_NTZ = "timestampNtz"


def hides_ntz(schema: pa.Schema) -> bool:
    """Whether a map holds a TIMESTAMP_NTZ, as key or value, at any depth.

    >>> hides_ntz(pa.schema([("seen", pa.map_(pa.timestamp("us"), pa.int64()))]))
    True
    >>> hides_ntz(pa.schema([("ts", pa.timestamp("us"))]))
    False
    """
    return any(_hides_ntz(field.type, within=False) for field in schema)


def _hides_ntz(type_: pa.DataType, within: bool) -> bool:
    if pa.types.is_timestamp(type_):
        return within and type_.tz is None
    within = within or pa.types.is_map(type_)
    return any(_hides_ntz(type_.field(i).type, within) for i in range(type_.num_fields))


def replace_table(store: Store, schema: pa.Schema, files: Sequence[AddAction]) -> None:
    """Make `files` the table at `store`, created or in place of what was there, in one commit."""
    options = store.options_dict
    if not hides_ntz(schema):
        create_table_with_add_actions(
            store.delta_uri,
            Schema.from_arrow(schema),
            list(files),
            mode="overwrite",
            storage_options=options,
        )
        return
    if not DeltaTable.is_deltatable(store.delta_uri, storage_options=options):
        try:
            create_table(store, schema, files=files)
            return
        except FileExistsError:
            pass  # another writer was first
    table = DeltaTable(store.delta_uri, storage_options=options)
    if _NTZ not in (table.protocol().reader_features or ()):
        # A commit of its own, which changes no row: overwriting cannot declare it.
        table.alter.add_feature(TableFeatures.TimestampWithoutTimezone, True)
    table.create_write_transaction(list(files), "overwrite", Schema.from_arrow(schema))


def create_table(
    store: Store,
    schema: pa.Schema,
    *,
    files: Sequence[AddAction] = (),
    name: str | None = None,
    configuration: Mapping[str, str] | None = None,
    transactions: Sequence[Transaction] = (),
) -> None:
    """Write the first commit of a table with a TIMESTAMP_NTZ within a map.

    Raises FileExistsError if there is a table already; in an object store, of two that create at
    the same time, the second replaces the first.
    """
    now = int(time.time() * 1000)
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "CREATE TABLE", "engineInfo": "windrow"}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [_NTZ],
                "writerFeatures": [_NTZ],
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "name": name,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": Schema.from_arrow(schema).to_json(),
                "partitionColumns": [],
                "createdTime": now,
                "configuration": dict(configuration or {}),
            }
        },
    ]
    actions += [{"txn": {"appId": t.app_id, "version": t.version}} for t in transactions]
    actions += [
        {
            "add": {
                "path": file.path,
                "size": file.size,
                "partitionValues": {},
                "modificationTime": file.modification_time,
                "dataChange": file.data_change,
                "stats": file.stats,
            }
        }
        for file in files
    ]
    data = "\n".join(map(json.dumps, actions)).encode()
    _write_new(Store.at(f"{store.uri}/_delta_log", store.options_dict), f"{0:020}.json", data)


def _write_new(folder: Store, name: str, data: bytes) -> None:
    if not folder.is_local:
        if folder.exists(name):
            raise FileExistsError(name)
        with folder.open_output(name) as out:
            out.write(data)
        return
    os.makedirs(folder.uri, exist_ok=True)
    temporary = Path(folder.uri, f".{name}-{new_id()}")
    try:
        temporary.write_bytes(data)
        os.link(temporary, f"{folder.uri}/{name}")  # fails if it is there
    finally:
        temporary.unlink(missing_ok=True)


def open_table(store: Store) -> DeltaTable | None:
    """The Delta table at `store`; None if there is none."""
    options = store.options_dict
    try:
        if not DeltaTable.is_deltatable(store.delta_uri, storage_options=options):
            return None
        return DeltaTable(store.delta_uri, storage_options=options)
    except Exception as error:  # delta-rs raises a class of its own for each of its parts
        what = "the Delta table that is there cannot be opened"
        found = failure(store.uri, what, error)
        if isinstance(found, StorageUnavailableError):
            raise found from error
        raise StorageError(
            f"{store.uri}: {what}: {first_line(error)}. Move the folder away, or restore its "
            "_delta_log"
        ) from error


@functools.lru_cache(maxsize=256)
def check_storable(schema: pa.Schema, what: str) -> None:
    """Raise SchemaError unless a Delta table of these columns can be created and opened again.

    It is tried, with an empty table in a temporary folder: what a table may hold is for its readers
    to say, and they only say so once it is there.
    """
    with ExitStack() as created:
        try:
            folder = created.enter_context(tempfile.TemporaryDirectory(prefix="windrow-"))
        except OSError as error:
            raise StorageUnavailableError(
                f"no temporary folder can be used: {error}. Free some space there, or name another "
                "in TMPDIR"
            ) from error
        try:
            replace_table(Store.at(folder), schema, [])
            found = pa.schema(DeltaTable(folder).schema().to_arrow())
        except Exception as error:
            failed = failure(folder, "cannot write to the temporary folder", error)
            if isinstance(failed, StorageUnavailableError):
                raise failed from error
            raise SchemaError(
                f"{what}: a Delta table cannot hold these columns: {first_line(error)}"
            ) from error
    for field, stored in zip(schema, found, strict=True):
        if _shape(field.type) != _shape(stored.type):
            raise SchemaError(
                f"{what}: column {field.name!r} is {field.type}, and a Delta table would hold "
                f"{stored.type}; cast it"
            )


def _shape(type_: pa.DataType) -> Any:
    """A type without the names of list elements and map entries, and what may be NULL."""
    children = [type_.field(i) for i in range(type_.num_fields)]
    if not children:
        return type_
    names = [child.name for child in children] if pa.types.is_struct(type_) else []
    if pa.types.is_map(type_):
        children = [pa.field("", type_.key_type), pa.field("", type_.item_type)]
    return type_.id, names, [_shape(child.type) for child in children]


def is_failure(error: BaseException) -> bool:
    """Whether delta-rs gave up: by an exception, or by a panic, which is not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
