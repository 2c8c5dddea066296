"""`windrow explain`: the plan of one join, and each of its features with type and window."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from rich.text import Text

from windrow.algebra.windows import Window, WindowKind
from windrow.commands.days import check_days
from windrow.commands.render import console, plain_table
from windrow.features.compute.types import feature_type
from windrow.features.plan.backfill import BackfillPlan
from windrow.spark.schemas import arrow_to_spark_schema
from windrow.time import DAY, HOUR, MINUTE, SECOND
from windrow.workspace import Workspace


def explain(
    workspace: Workspace, name: str, *, start: str | None = None, end: str | None = None
) -> None:
    """Print the plan of a join, then a table of the columns that it adds to its queries."""
    check_days(start, end)
    join = workspace.join(name)
    plan = workspace.project().plan(join, start=start, end=end)
    print(plan)
    print()
    table = plain_table("feature", "type", "window", "from")
    for row in feature_rows(plan):
        table.add_row(*map(Text, row))
    for column, expression in join.derive.items():
        table.add_row(Text(column), "", "", Text(expression))
    console().print(table)


def feature_rows(plan: BackfillPlan) -> Iterator[tuple[str, str, str, str]]:
    """For each feature of a plan: its column, its type in Spark, its window, its events."""
    for one in plan.passes:
        for group, number in zip(one.keys.groups, one.arrangements, strict=True):
            inputs = plan.arrangements[number].inputs
            schema = inputs.layout.input_schema
            sources = " and ".join(source.name for source in group.group.sources)
            source = f"{sources} by {', '.join(group.group.keys)}"
            if group.group.accuracy == "snapshot":
                source += ", snapshot"
            for feature in group.group.features:
                type_ = feature_type(feature.aggregation, schema, feature.name)
                shown = arrow_to_spark_schema(pa.schema([pa.field("f", type_)]))["f"].dataType
                window = window_text(feature.window)
                yield group.column(feature), shown.simpleString(), window, source


def window_text(window: Window) -> str:
    """A window's kind, length and hop.

    >>> window_text(Window.make("7d"))
    'sawtooth 7d, hop 1h'
    """
    if window.kind is WindowKind.LIFETIME:
        return "lifetime"
    if window.kind is WindowKind.SLIDING:
        return f"sliding {window.text}"
    return f"{window.kind.value} {window.text}, hop {_length(window.hop)}"


def _length(millis: int) -> str:
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if millis % size == 0:
            return f"{millis // size}{unit}"
    return f"{millis / SECOND:g}s"
