"""Tables for people: the summary of a backfill, and rows of a result.

Feature tables are wide and terminals are not, so rows are printed as columns, one line for each
column of the table.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windrow.features.run.backfill import BackfillSummary

_WIDTH = 120  # of output that no terminal shows


def console() -> Console:
    """Standard output as it is now; as wide as the terminal, if there is one."""
    return Console(width=shutil.get_terminal_size((_WIDTH, 24)).columns, highlight=False)


def plain_table(*headings: str) -> Table:
    """An empty table in the one style that all commands use."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        # Names stay whole, to be copied; long values are broken.
        table.add_column(heading, overflow="fold", no_wrap=number == 0)
    return table


def summary_table(summary: BackfillSummary) -> Table:
    """What a backfill did, a line for each figure."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("backfill")
    table.add_column("", justify="right")
    table.add_row("queries answered", f"{summary.queries:,}")
    table.add_row("  of those with a null key", f"{summary.null_keys:,}")
    table.add_row("  of those with a null time", f"{summary.null_times:,}")
    table.add_row("rows read", f"{summary.rows_read:,}")
    table.add_row("rows of raw tables arranged", f"{summary.raw_rows_read:,}")
    table.add_row("events quarantined", f"{summary.quarantined:,}")
    if summary.early_mutations:
        table.add_row("mutations up to the first snapshot", f"{summary.early_mutations:,} ignored")
    table.add_row("seconds", f"{summary.seconds:.1f}")
    table.add_row("peak memory of a task", f"{summary.peak_memory / 2**20:,.0f} MiB")
    return table


def rows_table(rows: pa.Table) -> Table:
    """Rows side by side, a line for each of their columns."""
    table = plain_table("column", *(f"row {n + 1}" for n in range(rows.num_rows)))
    for name in rows.column_names:
        values = rows.column(name).to_pylist()
        # As Text: rich would take some values for its own markup.
        table.add_row(Text(name), *(Text(shown(value)) for value in values))
    return table


def shown(value: Any) -> str:
    """A value of a result, short enough to be read.

    >>> shown([("rake", 2), ("hoe", 1)]), shown([3, None]), shown(1 / 3)
    ('{rake: 2, hoe: 1}', '[3, NULL]', '0.333333')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
        case dict():
            return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
        case [(_, _), *_] if all(isinstance(item, tuple) for item in value):  # a map of Arrow's
            return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in value) + "}"
        case list():
            return "[" + ", ".join(map(shown, value)) + "]"
        case _:
            return str(value)
