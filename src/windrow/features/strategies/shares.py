"""Files of rows that are read by their numbers, soon after they were written, and then removed.

    share │ share │ ... │ footer: which shares, where, their checksums │ its length, checksum, mark

Each share is a stream of Arrow, as it is in memory: rows that are read once need not be encoded.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.errors import StorageError
from windrow.storage.checksum import checksum, chunk_sum
from windrow.storage.failures import explained
from windrow.storage.store import Store
from windrow.updates import int64_values

SUFFIX = "shares"
_END = struct.Struct("<QQ8s")  # length and checksum of the footer, mark
_MARK = b"windrow\x01"


@dataclass(frozen=True)
class RowShares:
    """How the rows of a file are laid out for whoever reads them by their numbers. Picklable.

    `column` has the numbers. A share has those from one of `starts`, which ascend, to the next.
    Of the other columns only `columns` are stored (None: all).
    """

    column: str
    starts: tuple[int, ...]
    columns: tuple[str, ...] | None = None

    def pieces(self, table: pa.Table) -> list[Any]:
        """The buffers of a file of these rows."""
        numbers = int64_values(table, self.column)
        if self.columns is not None:
            table = table.select([self.column, *self.columns])
        owners = np.searchsorted(self.starts[1:], numbers, side="right")
        if len(self.starts) <= np.iinfo(np.int16).max:
            owners = owners.astype(np.int16)  # NumPy sorts these by counting
        table = table.take(pa.array(np.argsort(owners, kind="stable"))).combine_chunks()
        edges = np.cumsum(np.bincount(owners, minlength=len(self.starts)))
        pieces: list[Any] = []
        shares: list[tuple[int, int, int, int]] = []  # number, first byte, bytes, checksum
        at = 0
        for share, (first, last) in enumerate(itertools.pairwise([0, *edges.tolist()])):
            if first == last:
                continue
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(first, last - first))
            data = sink.getvalue()
            pieces.append(data)
            shares.append((share, at, data.size, chunk_sum(data)))
            at += data.size
        footer = json.dumps(shares).encode()
        return [*pieces, footer, _END.pack(len(footer), checksum(footer), _MARK)]

    def read(self, store: Store, paths: Sequence[str], share: int, columns: list[str]) -> pa.Table:
        """The rows of a share, in files that were written so; in no order."""
        found = []
        for path in paths:
            uri = f"{store.uri}/{path}"
            with store.open_input(path) as file, explained(uri, "read"):
                for number, start, size, expected in _shares(uri, file):
                    if number == share:
                        data = _range(file, start, size)
                        if chunk_sum(data) != expected:
                            raise _damaged(uri)
                        found.append(pa.ipc.open_stream(data).read_all().select(columns))
        return pa.concat_tables(found).combine_chunks() if found else pa.table({})


def _shares(uri: str, file: Any) -> list[tuple[int, int, int, int]]:
    """The footer of a file."""
    end = file.size() - _END.size
    if end < 0:
        raise _damaged(uri)
    length, expected, mark = _END.unpack(_range(file, end, _END.size).to_pybytes())
    if mark != _MARK or length > end:
        raise _damaged(uri)
    footer = _range(file, end - length, length).to_pybytes()
    if checksum(footer) != expected:
        raise _damaged(uri)
    return [(share, start, size, found) for share, start, size, found in json.loads(footer)]


def _range(file: Any, start: int, size: int) -> pa.Buffer:
    file.seek(start)
    return file.read_buffer(size)


def _damaged(uri: str) -> StorageError:
    return StorageError(
        f"{uri} is not as it was written a moment ago: look for a failing disk, and run it again"
    )
