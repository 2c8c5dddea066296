"""`windrow costs`: what views keep, what it was estimated at, and who shares it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.text import Text

from windrow.commands.render import console, plain_table
from windrow.project import Project
from windrow.views.costs.catalogue import Line, bytes_shared, estimate_error
from windrow.views.costs.explain import bytes_text

_HEADINGS = (
    "#",
    "operator",
    "keeps",
    "records",
    "estimate",
    "keys",
    "size",
    "runs",
    "new",
    "rows in",
    "out",
    "seconds",
)
_TEXTS = ("operator", "keeps")
_LONGEST = 60  # of an operator's title


def costs(
    project: Project, view: str | None = None, *, exact: bool = False, as_json: bool = False
) -> None:
    """Print a table for each view, and what all of them take together; or lines of JSON."""
    lines = project.costs(view, exact=exact)
    if as_json:
        for line in lines:
            print(json.dumps(asdict(line)))
        return
    if not lines:
        print("There are no views.")
        return
    for name in dict.fromkeys(line.view for line in lines):
        _print_view(name, [line for line in lines if line.view == name])
    print(totals(lines))


def _print_view(name: str, lines: Sequence[Line]) -> None:
    table = plain_table(*_HEADINGS)
    for column in table.columns:
        if column.header not in _TEXTS:
            column.justify = "right"
    for line in lines:
        table.add_row(*map(Text, cells(line)))
    table.title, table.title_justify = f"view {name}", "left"
    console().print(table)
    for line in lines:
        if line.shared_by:
            print(f"({_number(line)}) {line.what}: shared with {', '.join(line.shared_by)}")
        if line.advice:
            print(f"({_number(line)}) {line.what}: {line.advice}")


def cells(line: Line) -> list[str]:
    """One arrangement, as it is shown."""
    title = line.operator if len(line.operator) <= _LONGEST else f"{line.operator[:_LONGEST]}..."
    return [
        _number(line),
        title,
        f"{line.what} by ({line.key})" if line.key else line.what,
        f"{'' if line.exact else '≤ '}{line.records:,}",
        _count(line.estimate),
        _count(line.distinct_keys),
        bytes_text(line.bytes),
        str(line.batches),
        f"{line.updates_since_compaction:,}",
        _count(line.rows_in),
        _count(line.rows_out),
        "" if line.seconds is None else f"{line.seconds:.3f}",
    ]


def _number(line: Line) -> str:
    return "" if line.number < 0 else str(line.number)


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def totals(lines: Sequence[Line]) -> str:
    """What all arrangements take, each counted once; what sharing saves; how good estimates are."""
    once, alone = bytes_shared(lines)
    saved = f"; without sharing {bytes_text(alone)}" if alone > once else ""
    error = estimate_error(lines)
    off = "" if error is None else f"; estimates are off by {error:.0%} in the median"
    many = len({line.collection for line in lines})
    return f"{many} arrangement{'s' if many != 1 else ''}, {bytes_text(once)}{saved}{off}"
