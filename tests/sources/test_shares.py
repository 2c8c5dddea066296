"""Row groups in even shares: nothing twice, nothing left out, no task that ends much later."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from windrow.arrangements import build
from windrow.sources import files
from windrow.sources.columns import Taken
from windrow.sources.files import FileRows, Footer, ParquetFiles, SourceFile, TimeFilter

FOOTER = Footer((), pa.schema([]), {}, {}, ())


@given(
    st.lists(st.lists(st.integers(0, 3_000_000), max_size=4), max_size=12),
    st.integers(1, 9),
)
def test_shares_are_all_row_groups_in_order(sizes: list[list[int]], workers: int) -> None:
    found = [SourceFile(f"{n}.parquet", 1, tuple(groups), "1") for n, groups in enumerate(sizes)]
    parquet = ParquetFiles(tuple(found), (FOOTER,) * len(found))
    shares = parquet.shares(workers)
    assert all(shares)
    flat = [
        (span.uri, group)
        for share in shares
        for span in share
        for group in range(span.first, span.last)
    ]
    assert flat == [(f.uri, n) for f in found for n in range(len(f.groups))]


def test_shares_that_finish_together_are_preferred() -> None:
    # Eight files of a large and a small row group, two workers: a file each is even.
    found = [SourceFile(f"{n}.parquet", 1, (1_048_576, 201_424), "1") for n in range(8)]
    parquet = ParquetFiles(tuple(found), (FOOTER,) * 8)
    rows = {f.uri: f.groups for f in found}
    sizes = [
        sum(sum(rows[span.uri][span.first : span.last]) for span in share)
        for share in parquet.shares(2)
    ]
    assert sizes == [1_250_000] * 8
    assert max(sizes) <= files.TASK_ROWS


def test_tasks_have_no_more_rows_when_files_are_many() -> None:
    # Sorting costs more for each row, the more rows a task has: eight times the files, as large.
    found = [SourceFile(f"{n}.parquet", 1, (1_048_576, 201_424), "1") for n in range(64)]
    parquet = ParquetFiles(tuple(found), (FOOTER,) * 64)
    shares = parquet.shares(2)
    assert [len(share) for share in shares] == [1] * 64
    assert len(shares) < build.RUNS  # each writes a run, and they are not merged at once


def test_rows_have_numbers(tmp_path: Path) -> None:
    """Those of a file follow each other, whatever its row groups, and whoever reads them."""
    for number, rows in enumerate((5, 0, 7)):
        table = pa.table({"x": pa.array(range(rows), pa.int64())})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
    files = ParquetFiles.read([str(tmp_path / f"{n}.parquet") for n in range(3)], None)
    taken = (Taken("x", "x", pa.int64()),)
    for tasks in (1, 3):
        shares = files.shares(tasks, 3)
        late = TimeFilter("x", 1, None)  # rows that are left out have their numbers, too
        read = FileRows(shares, taken, (late,), numbered=("number", files.starts))
        found = [b for task in range(read.tasks) for b in read.batches(task)]
        table = pa.Table.from_batches(found)
        assert table["number"].to_pylist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        assert table["x"].to_pylist() == [1, 2, 3, 4, 1, 2, 3, 4, 5, 6]
