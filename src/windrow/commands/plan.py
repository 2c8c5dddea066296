"""`windrow plan`: what a backfill would read, arrange, compute and store, and why."""

from __future__ import annotations

from windrow.commands.days import check_days
from windrow.workspace import Workspace


def plan(
    workspace: Workspace,
    name: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
) -> None:
    """Print the plan of one join, or of all. Reads schemas, footers and logs, no rows."""
    check_days(start, end)
    joins = workspace.joins_named(name)
    project = workspace.project()
    for number, join in enumerate(joins):
        if number:
            print()
        print(project.plan(join, start=start, end=end))
