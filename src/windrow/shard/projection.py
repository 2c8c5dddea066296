"""Project, then consolidate: what is left of rows when columns are dropped is added up again.

Rows that differ become equal when the columns that tell them apart are not requested: without
any column, all of them do. What a merge puts out goes through a buffer that adds equal ones up,
as long as that makes them fewer:

    merge            k  city  _diff        project   city  _diff      buffer   city  _diff
                     1  Bern     +1   ──▶            Bern     +1   ──▶         Bern     +3
                     2  Bern     +2                  Bern     +2               Oslo     +1
                     3  Oslo     +1                  Oslo     +1

While the buffer holds fewer rows than it was given it also spares the merge: equal rows need not
meet before it if all of them meet in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from windrow.rows.hashing import hash_rows
from windrow.rows.types import single_chunk
from windrow.shard.scan import ROUND_ROWS, Scan
from windrow.updates import DIFF, TIME, int64_values, replace_column, update_schema
from windrow.words.consolidation import consolidate_unsorted
from windrow.words.groups import group_rows

SAMPLE_ROWS = 4_096
BUFFERED_ROWS = ROUND_ROWS  # updates that are added up at a time
HELD_ROWS = ROUND_ROWS // 2  # sums that are kept while more updates come
_LONGEST_PAUSE = 15
_INT64 = np.iinfo(np.int64)


def drops_columns(scan: Scan) -> bool:
    """Whether different rows may become equal in what `scan` puts out."""
    return not set(scan.columns) >= set(scan.spec.schema.names)


def shows_order(scan: Scan) -> bool:
    """Whether a column that is put out tells where a row stands in the shard's order."""
    ordering = {*scan.spec.prefix_columns, *scan.spec.order.columns}
    return not ordering.isdisjoint(scan.columns)


class ProjectionBuffer:
    """Adds up equal (projected row, time), in bounded memory and at best effort.

    Rows are emitted in the order in which they first arrived. The buffer tries a sample of what it
    is given: where hardly two rows are equal, updates pass through untouched, and it tries less
    and less often.
    """

    def __init__(self, scan: Scan) -> None:
        self._names = list(dict.fromkeys(scan.columns))
        self._by_time = not scan.times.is_single
        self._held: list[pa.Table] = []  # sums, then updates to be added to them
        self._rows = 0
        self._pause = self._longest_pause = 0
        self.absorbs = False  # whatever comes now will be added up before anything goes out

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take updates in; yields what goes out: columns of the projection, `_time`, `_diff`."""
        self._held.append(table.select([*self._names, TIME, DIFF]))
        self._rows += table.num_rows
        if self._rows < (BUFFERED_ROWS if self.absorbs else SAMPLE_ROWS):
            return
        if not self.absorbs:
            if not self._is_worthwhile():
                yield from self._release()
                return
            self.absorbs = True
            if self._rows < BUFFERED_ROWS:
                return
        before = self._rows
        self._consolidate()
        if self._rows > max(HELD_ROWS, before // 2):
            self.absorbs = False
            self._wait()
        if self._rows > HELD_ROWS:
            yield from self._release()

    def rest(self) -> Iterator[pa.Table]:
        """What is still held, after the last update."""
        if self._rows:
            self._consolidate()
        yield from self._release()

    def _release(self) -> Iterator[pa.Table]:
        released, self._held, self._rows = self._held, [], 0
        yield from released

    def _consolidate(self) -> None:
        table = pa.concat_tables(self._held).combine_chunks()
        columns, words = self._words(table)
        found = consolidate_unsorted(words, int64_values(table, DIFF), columns)
        if found.rows.size < table.num_rows:
            table = replace_column(table.take(pa.array(found.rows)), DIFF, found.diffs)
        self._held, self._rows = [table], table.num_rows

    def _is_worthwhile(self) -> bool:
        """Whether a sample has equal rows.

        One in 32 of 4,096 is equal to another if they are drawn from about 65,000 rows: few
        enough for all of them to be held.
        """
        if self._pause:
            self._pause -= 1
            return False
        sample = pa.concat_tables(self._held).slice(0, SAMPLE_ROWS).combine_chunks()
        columns, words = self._words(sample)
        _, firsts = group_rows(words, columns)
        if sample.num_rows - firsts.size < sample.num_rows / 32:
            self._wait()
            return False
        return True

    def _wait(self) -> None:
        self._longest_pause = min(2 * self._longest_pause + 1, _LONGEST_PAUSE)
        self._pause = self._longest_pause

    def _words(self, table: pa.Table) -> tuple[list[pa.Array], np.ndarray]:
        """The columns that rows are compared by, and their words: the row's hash, and the time."""
        columns = [single_chunk(table.column(name)) for name in self._names]
        words = [hash_rows(columns)] if columns else []
        if self._by_time:
            words.append(int64_values(table, TIME))
        return columns, np.vstack(words or [np.zeros(table.num_rows, np.int64)])


def total(tables: Iterable[pa.Table], time: int) -> pa.Table:
    """One update without columns that stands for all: the sum of their diffs, at `time`.

    Several if the sum exceeds 64 bits, and none if it is zero.
    """
    left = 0
    for table in tables:
        diffs = int64_values(table, DIFF)
        # The sum of the halves cannot leave 64 bits.
        left += (int((diffs >> 32).sum()) << 32) + int((diffs & 0xFFFFFFFF).sum())
    sums: list[int] = []
    while left:
        sums.append(max(min(left, _INT64.max), _INT64.min))
        left -= sums[-1]
    times = np.full(len(sums), time, np.int64)
    return pa.table([times, np.array(sums, np.int64)], schema=update_schema(pa.schema([])))
