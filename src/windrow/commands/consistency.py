"""`windrow consistency`: whether what was served is what a backfill computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from windrow.commands.days import check_days
from windrow.commands.online import named
from windrow.commands.render import console, plain_table
from windrow.consistency.report import NO_DATA, Report
from windrow.errors import OptionError
from windrow.workspace import Workspace

_REASONS = 5  # lines of them


def consistency(
    workspace: Workspace,
    name: str,
    *,
    start: str | None = None,
    end: str | None = None,
    threshold: float = 0.999,
    examples: int = 50,
    log: str | None = None,
    time: str | None = None,
    keys: Sequence[str] = (),
    values: Sequence[str] = (),
    progress: bool | None = None,
) -> Report:
    """Compare, print what was found of each feature, and say where the report is."""
    check_days(start, end)
    definition = named(workspace, name)
    with workspace.project(progress=progress) as project:
        report = project.consistency(
            definition,
            start=start,
            end=end,
            threshold=threshold,
            examples=examples,
            log=log,
            time=time,
            keys=_pairs(keys, "--keys"),
            values=_pairs(values, "--values"),
        )
    _print(report)
    return report


def _print(report: Report) -> None:
    out = console()
    if report.features:
        titles = ("equal", "both empty", "only online", "only offline", "different")
        table = plain_table("feature", *titles, "agree")
        for one in report.features:
            counts = [f"{count:,}" for count in one.counted.to_json().values()]
            table.add_row(Text(one.name), *counts, percent(one.counted.share))
        out.print(table)
    print(verdict_line(report))
    if report.coverage is not None:
        print(coverage_line(report))
    for note in report.notes:
        print(note)
    seen = [(e, e.reasons[0]) for e in report.examples if e.reasons]
    for example, reason in seen[:_REASONS]:
        print(f"  {example.feature}: {reason.cause.value}: {reason.says}")
    print(f"The report is {report.page}")


def verdict_line(report: Report) -> str:
    """The verdict, in a line."""
    if report.verdict == NO_DATA:
        return (
            f"{report.name}: no data: nothing was logged in this time. Serve with --log-rate, or "
            "say which log to read with --log"
        )
    share = percent(report.share)
    total = report.counted.total
    line = f"{report.name}: {report.verdict}: {share} of {total:,} values agree"
    low = [one.name for one in report.features if (one.counted.share or 0) < report.threshold]
    if low:
        several = f" and {len(low) - 1} more" if len(low) > 1 else ""
        line += f"; {low[0]}{several} below {percent(report.threshold)}"
    return line


def coverage_line(report: Report) -> str:
    """What the log has of all requests, in a line."""
    found = report.coverage
    assert found is not None
    line = (
        f"{found.logged:,} of {found.requests:,} requests are logged; {found.sampled_out:,} were "
        f"sampled out, {found.dropped:,} dropped"
    )
    if found.unclosed:
        line += f"; {found.unclosed:,} writers have not ended: what they served last is missing"
    return line


def percent(share: float | None) -> str:
    """A share, never rounded up to all.

    >>> percent(0.99999), percent(1.0), percent(None)
    ('99.99 %', '100 %', '')
    """
    if share is None:
        return ""
    return "100 %" if share == 1 else f"{int(share * 10_000) / 100:.2f} %"


def _pairs(texts: Sequence[str], what: str) -> Mapping[str, str] | None:
    found = {}
    for text in texts:
        name, equals, column = text.partition("=")
        if not equals or not name or not column:
            raise OptionError(f"{what} {text!r}: write NAME=COLUMN")
        found[name] = column
    return found or None
