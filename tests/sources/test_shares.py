"""Row groups in even shares: nothing twice, nothing left out, no task that ends much later."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.arrangements import build
from windrow.sources import files
from windrow.sources.files import Footer, ParquetFiles, SourceFile

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
