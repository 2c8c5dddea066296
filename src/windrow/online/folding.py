"""Rows into records: what a micro-batch, or an upload, makes of the records it touches.

Rows are those that a shard took in between two times, its *span*. A record says up to which time it
has been brought, for each source: a span that it has is left out, so that rows that come again
change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from windrow.errors import DataError
from windrow.features.compute.events import Events
from windrow.features.compute.timeline import key_ids
from windrow.features.inputs.layout import EVENT_TIME
from windrow.online.cells import combined, lifted
from windrow.online.grown import grown
from windrow.online.live_rows import LiveRows, columns_of, decode_rows, encode_rows, joined, settled
from windrow.online.records import Found, Heads, encode_cells
from windrow.online.served import TILES, ServedGroup
from windrow.rows.types import canonical_values, single_chunk
from windrow.sources.columns import KNOWN_AT
from windrow.time import now_millis
from windrow.updates import DIFF, int64_values

EXACT = 128  # cells (or updates) since the sealed time that a record may have, before it is sealed
KEPT = 64  # of them that stay as they are
MARGIN = 10_000  # milliseconds before now that are never sealed: clocks differ


@dataclass(frozen=True)
class Batch:
    """Rows of some keys, in the columns of the group's arrangement, and `_diff`.

    `key` is the number of each row's key, of which `keys` has one row each. Rows with a NULL in a
    key are left out: no query has such a key.
    """

    keys: pa.Table
    key: np.ndarray
    rows: pa.Table

    @staticmethod
    def of(served: ServedGroup, table: pa.Table) -> Batch:
        """From a table with the columns of the arrangement, in any order."""
        names = served.layout.keys
        valid = np.ones(table.num_rows, np.bool_)
        for name in names:
            column = single_chunk(table.column(name))
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        if not valid.all():
            table = table.filter(pa.array(valid))
        columns = [canonical_values(single_chunk(table.column(name))) for name in names]
        keys = pa.table(columns, names=names)
        ids = key_ids(keys)
        _, first, number = np.unique(ids, return_index=True, return_inverse=True)
        rows = table.drop_columns(names)
        if DIFF not in rows.column_names:
            rows = rows.append_column(DIFF, pa.array(np.ones(rows.num_rows, np.int64)))
        return Batch(keys.take(pa.array(first)), number, rows)

    def only(self, kept: np.ndarray) -> Batch:
        """Some of the rows; the keys stay."""
        if kept.all():
            return self
        return Batch(self.keys, self.key[kept], self.rows.filter(pa.array(kept)))


@dataclass(frozen=True)
class Folding:
    """Brings the records of the keys of `batch` up to the position `upper` of a source.

    Records that are not there begin with the positions and the sealed time of their generation.
    Without `upper`, rows are those of all sources at these positions: of an upload.
    """

    served: ServedGroup
    batch: Batch
    sealed: int
    positions: tuple[int, ...]
    source: int = 0
    upper: int | None = None
    now: Callable[[], int] = now_millis

    def __call__(self, records: Sequence[bytes | None]) -> list[bytes | None]:
        found = Found.of(self.served, records)
        heads = found.heads(self.sealed, self.positions)
        batch = self.batch
        if self.upper is not None:
            before = heads.positions[:, self.source]
            batch = batch.only(before[batch.key] < self.upper)
            positions = heads.positions.copy()
            positions[:, self.source] = np.maximum(before, self.upper)
            heads = Heads(heads.sealed, positions)
        if self.served.form == TILES:
            return self._tiles(found, heads, batch)
        return self._rows(found, heads, batch)

    def _tiles(self, found: Found, heads: Heads, batch: Batch) -> list[bytes | None]:
        served = self.served
        events, key = _events(served, batch)
        new = lifted(served, events, key, heads.sealed)
        if not (found.at >= 0).any():
            sealed = self._sealed(heads.sealed, new.key, new.start)
            if (sealed != heads.sealed).any():
                new = combined(served, [new], sealed)
            return encode_cells(served, new, replace(heads, sealed=sealed))
        key, start = found.starts()
        key, start = np.concatenate([key, new.key]), np.concatenate([start, new.start])
        sealed = self._sealed(heads.sealed, key, start)
        if not served.lanes and (sealed == heads.sealed).all():
            return grown(served, found, new, heads)
        both = combined(served, [found.cells(), new], sealed)
        return encode_cells(served, both, replace(heads, sealed=sealed))

    def _rows(self, found: Found, heads: Heads, batch: Batch) -> list[bytes | None]:
        served, layout = self.served, self.served.layout
        order = np.argsort(batch.key, kind="stable")
        rows = batch.rows.select(columns_of(layout)).take(pa.array(order))
        live = LiveRows(batch.key[order], rows)
        if (found.at >= 0).any():
            live = joined([decode_rows(found), live])
        known_at = int64_values(live.rows, KNOWN_AT)
        sealed = self._sealed(heads.sealed, live.key, known_at)
        live = settled(served, live, sealed)
        return encode_rows(served, live, replace(heads, sealed=sealed))

    def _sealed(self, sealed: np.ndarray, key: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Sealed times by key: moved forward where much has happened since."""
        exact = times >= sealed[key]
        counts = np.bincount(key[exact], minlength=sealed.size)
        large = np.flatnonzero(counts > EXACT)
        if not large.size:
            return sealed
        sealed = sealed.copy()
        latest = self.now() - MARGIN
        some = np.flatnonzero(exact & np.isin(key, large))
        order = some[np.lexsort((times[some], key[some]))]
        ends = np.searchsorted(key[order], large, "right")
        sealed[large] = np.maximum(sealed[large], np.minimum(times[order[ends - KEPT]], latest))
        return sealed


def _events(served: ServedGroup, batch: Batch) -> tuple[Events, np.ndarray]:
    """The rows of a batch as events, each as often as its diff says; and their keys' numbers."""
    rows, key = batch.rows, batch.key
    diffs = int64_values(rows, DIFF)
    if diffs.size and diffs.min() < 0:
        names = ", ".join(source.name for source in served.group.sources)
        raise DataError(
            f"group {served.name}: a row of {names} was retracted, but it is a source of events; "
            "make it an EntitySource, or upload again after its rows were corrected"
        )
    if diffs.size and diffs.max() > 1:
        often = np.repeat(np.arange(diffs.size), diffs)
        rows, key = rows.take(pa.array(often)), key[often]
    layout = served.layout
    events = Events(
        rows.select([]),
        int64_values(rows, EVENT_TIME),
        layout.input_table(rows),
        layout.condition_masks(rows),
    )
    return events, key
