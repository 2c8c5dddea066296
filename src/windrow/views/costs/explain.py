"""Plans with what they cost: estimated (EXPLAIN COST), or measured (EXPLAIN ANALYZE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.views.costs.catalogue import Line
from windrow.views.costs.estimates import Estimate
from windrow.views.costs.ticks import OUTPUT, ViewRun
from windrow.views.plan.nodes import Arrangement, Node, ViewPlan


def with_estimates(plan: ViewPlan, estimates: Mapping[str, Estimate]) -> str:
    """A plan with the records that it is thought to keep."""

    def size(one: Arrangement) -> str:
        estimate = estimates.get(one.name)
        return "" if estimate is None else f" ({about(estimate.records)})"

    output = estimates.get(plan.output.name)
    kept = {name: one for name, one in estimates.items() if name != plan.output.name}
    lines = [plan.text(size=size)]
    if output is not None:
        total = sum(one.records for one in kept.values())
        lines += ["", f"{about(total)} in all, beside its own rows, {about(output.records)}"]
    return "\n".join(lines)


def about(records: float) -> str:
    return f"about {round(records):,} record{'' if round(records) == 1 else 's'}"


def analyzed(
    plan: ViewPlan, lines: Sequence[Line], places: Mapping[str, str], runs: Sequence[ViewRun]
) -> str:
    """A plan with what is kept, and what each operator did in the last runs."""
    sizes = {line.collection: line for line in lines}
    numbers = {id(node): at for at, node in enumerate(plan.operators())}

    def size(one: Arrangement) -> str:
        line = sizes[places[one.name]]
        estimate = "" if line.estimate is None else f", estimated {line.estimate:,}"
        shared = f", shared with {', '.join(line.shared_by)}" if line.shared_by else ""
        return f" ({kept(line)}{estimate}{shared})"

    def did(node: Node) -> list[str]:
        number = numbers[id(node)]
        advice = [line.advice for line in lines if line.number == number and line.advice]
        return [*_did(runs, number), *(f"better: {one}" for one in advice)]

    output = sizes[places[plan.output.name]]
    return "\n".join(
        [
            f"View {output.view}",
            f"  - keeps its rows{size(plan.output)}",
            *(f"  - {line}" for line in _did(runs, OUTPUT)),
            *(f"  {line}" for line in plan.text(did, size).splitlines()),
            "",
            *_summary(runs),
        ]
    )


def kept(line: Line) -> str:
    """What is known of the size of an arrangement."""
    most = "" if line.exact else "at most "
    runs = f"{line.batches} run{'' if line.batches == 1 else 's'}"
    return f"{most}{line.records:,} records, {bytes_text(line.bytes)} in {runs}"


def _did(runs: Sequence[ViewRun], operator: int) -> list[str]:
    found = []
    for number, run in enumerate(runs):
        one = run.operators.get(operator)
        if one is not None:
            which = "fill" if run.fill else "last tick" if not number else f"{number} before"
            found.append(
                f"{which}: {one.rows_in:,} rows in, {one.rows_out:,} out, {one.looked_up:,} looked "
                f"up, {bytes_text(one.bytes)} written, {one.seconds:.3f} s"
            )
    return found


def _summary(runs: Sequence[ViewRun]) -> list[str]:
    if not runs:
        return ["no run of this view is in the newest records of the history"]
    return [
        f"{'fill' if run.fill else 'tick'} of version {run.version}: {run.seconds:.2f} s"
        for run in runs
    ]


def bytes_text(size: int) -> str:
    """A size for people.

    >>> bytes_text(512), bytes_text(20_480), bytes_text(3 << 30)
    ('512 B', '20.0 KiB', '3.0 GiB')
    """
    found = float(size)
    for unit in ("B", "KiB", "MiB"):
        if found < 1024:
            return f"{found:,.0f} {unit}" if unit == "B" else f"{found:,.1f} {unit}"
        found /= 1024
    return f"{found:,.1f} GiB"
