"""The grid: which times of rows no window can tell apart, so that their states can be combined.

Windows start at multiples of their hops, and end at the time of the query or at such a multiple.
For queries from a *sealed* time on, rows before it that lie in the same hops of all windows that
still reach them always count together: they are one *cell*, known by its start. Rows at or after
the sealed time are cells of their own, and so are those that a sliding window reaches.

Cells are combined into larger ones as the sealed time advances, from their starts alone: the start
of a cell is in the same hops as all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from windrow.algebra.windows import Window, WindowKind
from windrow.rows.ordering import LOWEST
from windrow.time import floor_to

OLD = LOWEST + 1  # the cell of everything that only lifetime aggregates reach
EXPIRED = LOWEST  # not a cell: nothing reaches it


@dataclass(frozen=True)
class Grid:
    """The cells of some windows; `refresh` is zero, or at which multiples queries are answered."""

    windows: tuple[Window, ...]
    refresh: int = 0

    def cells(self, times: np.ndarray, sealed: np.ndarray) -> np.ndarray:
        """The start of each time's cell, for queries from `sealed` on; EXPIRED for those in none.

        >>> from windrow.time import MINUTE
        >>> grid = Grid((Window.make("1h", hop="5m"), Window.make("3h", hop="1h")))
        >>> times = np.array([3, 67, 131, 132, 195]) * MINUTE
        >>> (grid.cells(times, np.full(5, 190 * MINUTE)) // MINUTE).tolist()[1:]
        [60, 130, 130, 195]
        """
        lifetime = any(w.kind is WindowKind.LIFETIME for w in self.windows)
        found = np.full(times.size, OLD if lifetime else EXPIRED)
        effective = floor_to(sealed, self.refresh) if self.refresh else sealed
        for window in self.windows:
            if window.kind is WindowKind.LIFETIME:
                continue
            start, _ = window.bounds(effective)
            cell = times if window.kind is WindowKind.SLIDING else floor_to(times, window.hop)
            found = np.where(times >= start, np.maximum(found, cell), found)
        if self.refresh:  # queries are answered as of such a multiple, from `effective` on
            kept = (times >= effective) & (found != EXPIRED)
            found = np.where(kept, np.maximum(found, floor_to(times, self.refresh)), found)
        return np.where(times >= sealed, times, found)

    @staticmethod
    def of(windows: Iterable[Window], refresh: int = 0) -> Grid:
        return Grid(tuple(dict.fromkeys(windows)), refresh)
