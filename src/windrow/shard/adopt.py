"""Adopting: Parquet files of updates that others wrote become parts as they are.

The file is copied into the shard, with checksums, and not encoded again. It has no order and
neither `_prefix` nor `_hash`; readers make them when they read, and the first compaction for good.
The file is read once here, to check it and to learn its bounds.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.errors import DataError, SchemaError, StorageError, StorageUnavailableError
from windrow.rows.types import check_schema
from windrow.shard.append import BatchWriter
from windrow.shard.part import UNSORTED, PartName, delta_statistics, fingerprint
from windrow.shard.spec import PREFIX
from windrow.shard.sums import chunk_sums, tail_facts
from windrow.spark.tasks import Written, WrittenFile
from windrow.storage.failures import unavailable
from windrow.storage.footers import LENGTH_BYTES, check_footer, footer_bytes
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.updates import DIFF, TIME, int64_values, update_schema

_COPIED_BYTES = 8 << 20  # at a time


def adopt_files(writer: BatchWriter, paths: Sequence[str]) -> Written:
    """Copy `paths` (URIs or local paths) into the shard's store as unsorted parts."""
    parts: list[WrittenFile] = []
    digest = 0
    try:
        for path in paths:
            part, content = _adopt(writer, path)
            digest = (digest + content) % 2**64
            if part is not None:
                parts.append(part)
    except BaseException:
        writer.store.delete([part.path for part in parts])
        raise
    return Written(parts, digest)


def _adopt(writer: BatchWriter, path: str) -> tuple[WrittenFile | None, int]:
    source, file_name = Store.of_file(path, writer.store.options_dict)
    try:
        opened = source.open_input(file_name)
        check_footer(opened, path)
        file = pq.ParquetFile(opened, page_checksum_verification=True)
    except StorageUnavailableError:
        raise
    except (pa.ArrowException, OSError, StorageError) as error:
        said = StorageError(f"adopt: {path} is not a readable Parquet file: {error}")
        raise unavailable(path, error) or said from error
    with file:
        _check_file(file, writer, path)
        digest = retractions = 0
        bounds: dict[str, list[int]] = {PREFIX: [], TIME: []}
        for batch in file.iter_batches(use_threads=False):
            stored = writer.prepare(pa.Table.from_batches([batch]), f"adopt: {path}")
            digest = (digest + fingerprint(stored)) % 2**64
            diffs = int64_values(stored, DIFF)
            if (diffs == 0).any():
                raise DataError(f"adopt: {path} holds updates with a _diff of 0; filter them out")
            retractions += int((diffs < 0).sum())
            for column, known in bounds.items():
                values = int64_values(stored, column)
                known += (int(values.min()), int(values.max()))
        if not bounds[TIME] or writer.dry:
            return None, digest
        metadata = file.metadata
        statistics = json.loads(delta_statistics(metadata, writer.spec))
    # Reads need these two, and the file may be one without statistics.
    for column, known in bounds.items():
        statistics["minValues"][column] = min(known)
        statistics["maxValues"][column] = max(known)
    name = PartName(writer.lower, writer.upper, new_id(), 0, new_id(), UNSORTED, retractions)
    written, size = _copy(source, file_name, metadata, writer.store, name)
    return WrittenFile(written, statistics["numRecords"], size, json.dumps(statistics)), digest


def _copy(
    source: Store, file_name: str, metadata: Any, store: Store, name: PartName
) -> tuple[str, int]:
    """Copy a file, with sums; its name in the shard's store and its size there."""
    with source.open_input(file_name) as file:

        def read(start: int, end: int) -> pa.Buffer:
            file.seek(start)
            return file.read_buffer(end - start)

        size = file.size()
        footer = size - footer_bytes(read(size - LENGTH_BYTES, size))
        tail = pa.py_buffer(chunk_sums(metadata, read) + read(footer, size).to_pybytes())
        whole = str(replace(name, tail=tail_facts(tail)))
        starts = range(0, footer, _COPIED_BYTES)
        content = (read(start, min(start + _COPIED_BYTES, footer)) for start in starts)
        store.write(whole, itertools.chain(content, [tail]))
    return whole, footer + tail.size


def _check_file(file: pq.ParquetFile, writer: BatchWriter, path: str) -> None:
    found = file.schema_arrow
    if TIME not in found.names or DIFF not in found.names:
        raise SchemaError(
            f"adopt: {path} has no _time and _diff columns, so it does not hold updates. Append "
            "its rows instead, for example append(spark.read.parquet(path), ...)"
        )
    check_schema(found, update_schema(writer.spec.schema), f"adopt: {path}")
