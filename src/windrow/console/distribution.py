"""How the values of a feature are distributed, and how many are empty over time.

Read from what was served, if that is logged, or else from the result of a backfill: some of the
rows, two columns of them. Kept as long as the table has the same version.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from windrow.console.text import short, value
from windrow.storage.store import Store

ROWS = 100_000  # that are read
BINS, SPANS, LIKELY = 24, 32, 12
t = pa.types


@dataclass(frozen=True)
class Distribution:
    """Of some rows of a table. `bars` are labels with counts; `empty` is by time."""

    table: str
    what: str  # what the labels are: values, or lengths of lists
    rows: int
    missing: int
    bars: tuple[tuple[str, int], ...]
    empty: tuple[tuple[int, int, int], ...]  # start in milliseconds, rows, and of them empty
    is_all: bool
    low: str = ""
    high: str = ""
    numeric: bool = False

    @property
    def most(self) -> int:
        return max((count for _, count in self.bars), default=1)


class Distributions:
    """Remembers what was read."""

    _MOST = 64

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, Distribution | None]] = {}
        self._lock = threading.Lock()

    def of(self, root: Store, tables: Sequence[tuple[str, str, str]]) -> Distribution | None:
        """Of the first table that has rows: (folder beneath the root, column, time column)."""
        for folder, column, time in tables:
            found = self._of(root.beneath(folder), folder, column, time)
            if found is not None and found.rows:
                return found
        return None

    def _of(self, store: Store, folder: str, column: str, time: str) -> Distribution | None:
        try:
            if not store.beneath("_delta_log").is_there():
                return None
            table = DeltaTable(store.delta_uri, storage_options=store.options_dict)
            version = table.version()
            with self._lock:
                known = self._known.get((store.uri, column))
            if known is not None and known[0] == version:
                return known[1]
            found = _read(table, folder, column, time)
        except Exception:  # delta-rs raises a class of its own for each of its parts
            return None
        with self._lock:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[store.uri, column] = version, found
        return found


def _read(table: DeltaTable, folder: str, column: str, time: str) -> Distribution | None:
    data = table.to_pyarrow_dataset()
    if column not in data.schema.names or time not in data.schema.names:
        return None
    rows = data.scanner(columns=[column, time]).head(ROWS).combine_chunks()
    return described(rows.column(0), rows.column(1), folder, is_all=rows.num_rows < ROWS)


def described(
    values: pa.ChunkedArray, times: pa.ChunkedArray, table: str, *, is_all: bool = True
) -> Distribution:
    """The distribution of a column."""
    what, numeric, low, high = "values", False, "", ""
    present = values.drop_null()
    if t.is_list(values.type) or t.is_map(values.type) or t.is_large_list(values.type):
        what = "how many elements they have"
        sizes = [len(one) for one in present.to_pylist()]
        bars = _likely(sizes, ordered=True)
    elif t.is_integer(values.type) or t.is_floating(values.type) or t.is_decimal(values.type):
        numeric = True
        numbers = pc.cast(present, pa.float64()).to_numpy()
        numbers = numbers[np.isfinite(numbers)]
        bars = _bins(numbers)
        if numbers.size:
            low, high = f"{numbers.min():g}", f"{numbers.max():g}"
    else:
        bars = _likely(present.to_pylist(), ordered=False)
    missing = values.null_count
    empty = _over_time(values, times)
    return Distribution(table, what, len(values), missing, bars, empty, is_all, low, high, numeric)


def _bins(numbers: np.ndarray) -> tuple[tuple[str, int], ...]:
    if not numbers.size:
        return ()
    distinct = np.unique(numbers)
    if distinct.size <= BINS:
        counts = Counter(numbers.tolist())
        return tuple((f"{one:g}", counts[one]) for one in distinct.tolist())
    counted, edges = np.histogram(numbers, bins=BINS)
    return tuple(
        (f"{edges[i]:.4g} to {edges[i + 1]:.4g}", int(count)) for i, count in enumerate(counted)
    )


def _likely(found: Sequence[Any], *, ordered: bool) -> tuple[tuple[str, int], ...]:
    """The values that come most often, by how often, or in their order."""
    counts = Counter(found) if ordered else Counter(map(value, found))
    likely = counts.most_common(BINS if ordered else LIKELY)
    if ordered:
        likely.sort()
    return tuple((short(str(one), 40), count) for one, count in likely)


def _over_time(values: pa.ChunkedArray, times: pa.ChunkedArray) -> tuple[tuple[int, int, int], ...]:
    """Rows, and of them the empty ones, in equal spans of time."""
    at = _millis(times)
    valid = times.is_valid().to_numpy()
    null = values.is_null().to_numpy()
    at, null = at[valid], null[valid]
    if not at.size:
        return ()
    low, high = int(at.min()), int(at.max())
    step = max(1, -(-(high - low + 1) // SPANS))
    span = (at - low) // step
    rows = np.bincount(span, minlength=1)
    empty = np.bincount(span, weights=null, minlength=rows.size)
    return tuple((low + i * step, int(rows[i]), int(empty[i])) for i in range(rows.size) if rows[i])


def _millis(times: pa.ChunkedArray) -> np.ndarray:
    """Times as milliseconds; of NULLs, anything."""
    if t.is_timestamp(times.type):
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    elif t.is_date(times.type):
        times = times.cast(pa.date64()).cast(pa.int64())
    found: np.ndarray = pc.fill_null(times.cast(pa.int64()), 0).to_numpy()
    return found
