"""Files of the table of comparisons.

A comparison is written in few bytes: outcomes are a few words, and most errors are 0. Values are
not compressed: that made writing them take a third longer, and the files a third smaller.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.spark.tasks import WrittenFile
from windrow.storage.encoding import encoding
from windrow.storage.names import new_id
from windrow.storage.store import Store


class ComparisonFile:
    """One file, written piece by piece; a piece is a row group.

    Texts may come as dictionaries. Statistics are of the columns `by` alone.
    """

    def __init__(self, store: Store, run: str, by: Sequence[str]) -> None:
        self._store, self._by = store, list(by)
        self._name = f"{run}-{new_id()}.parquet"
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink,
                rows.schema,
                write_statistics=self._by,
                store_schema=False,
                write_page_checksum=True,
                **encoding(rows) | {"compression": "none"},
            )
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows += rows.num_rows

    def close(self) -> list[WrittenFile]:
        """The file, if anything was written."""
        if self._writer is None:
            return []
        self._writer.close()
        data = self._sink.getvalue()
        self._store.write(self._name, [data])
        statistics = json.dumps({"numRecords": self._rows})
        return [WrittenFile(self._name, self._rows, data.size, statistics)]
