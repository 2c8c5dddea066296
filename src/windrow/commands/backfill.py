"""`windrow backfill`: compute a join's features and store them; then say what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.commands.days import check_days
from windrow.commands.render import console, rows_table, summary_table
from windrow.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def backfill(
    workspace: Workspace,
    name: str,
    *,
    start: str | None = None,
    end: str | None = None,
    progress: bool | None = None,
    rows: int = 5,
) -> DataFrame:
    """Backfill a join, print the summary, `rows` rows and where the result is stored; return it."""
    check_days(start, end)
    join = workspace.join(name)
    project = workspace.project(progress=progress)
    frame = project.backfill(join, start=start, end=end)
    out = console()
    if project.summary is not None:
        out.print(summary_table(project.summary))
    if rows:
        found = frame.limit(rows).toArrow()
        if found.num_rows:
            out.print(rows_table(found))
    # Not through the console: it would break a long path into lines.
    print(f"The result is a Delta table: {workspace.result_uri(join)}")
    return frame
