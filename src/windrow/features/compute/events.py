"""The two sides of a slice, as tables and arrays: events, and queries."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.rows.types import canonical_values, single_chunk


@dataclass(frozen=True)
class Events:
    """Events of a slice, in any order; or, with the `hashes` of their keys, by hash and time.

    `inputs` holds every column that an aggregation reads; `conditions` maps an aggregation's SQL
    condition to where it holds.
    """

    keys: pa.Table
    times: np.ndarray
    inputs: pa.Table
    conditions: Mapping[str, np.ndarray]
    hashes: np.ndarray | None = None
    lives: tuple[np.ndarray, np.ndarray] | None = None  # born and died, of rows that change


@dataclass(frozen=True)
class QueryTimes:
    """Queries of a slice: keys with the group's column names, and their times.

    They are in any order, or, with the `hashes` of their keys, sorted by hash and time. Where
    `valid` is false the time is null, and so are all features but counts.
    """

    keys: pa.Table
    times: np.ndarray
    valid: np.ndarray
    hashes: np.ndarray | None = None

    @functools.cached_property
    def live(self) -> np.ndarray:
        """Which queries have a key and a time; all others have the features of an empty window."""
        live = self.valid.copy()
        for column in self.keys.columns:
            live &= single_chunk(column).is_valid().to_numpy(zero_copy_only=False)
        return live


def canonical_table(table: pa.Table) -> pa.Table:
    columns = [canonical_values(single_chunk(column)) for column in table.columns]
    return pa.table(columns, names=table.column_names)
