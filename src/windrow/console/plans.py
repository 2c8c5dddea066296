"""The plan of a view as a drawing: its operators, with what each keeps and did in the last ticks.

The catalogue has a plan as text, each operator beneath the one that reads it. Figures are by the
operator's number in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windrow.console.layers import Drawn, laid_out
from windrow.views.costs.catalogue import Line, last_of
from windrow.views.costs.ticks import OUTPUT, OperatorRun, ViewRun

WIDTH = 316.0
_LINE, _PAD = 17.0, 14.0


@dataclass
class Operator:
    """An operator of a plan: its number, its inputs, and what is known of it."""

    number: int
    title: str
    depth: int
    details: list[str] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    lines: tuple[Line, ...] = ()
    run: OperatorRun | None = None

    @property
    def relation(self) -> str | None:
        """The relation whose changes it reads, if it is an input."""
        return self.title.removeprefix("Input ") if self.title.startswith("Input ") else None

    @property
    def word(self) -> str:
        """What kind of operator it is."""
        return self.title.partition(" ")[0]

    @property
    def rest(self) -> str:
        return self.title.partition(" ")[2]

    @property
    def records(self) -> int:
        return sum(line.records for line in self.lines)

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.lines)

    @property
    def facts(self) -> int:
        """How many lines of facts a drawing shows."""
        return (self.run is not None) + bool(self.lines)


@dataclass(frozen=True)
class Plan:
    """Operators by number; the view's own rows come first, as operator -1."""

    operators: Mapping[int, Operator]
    total_seconds: float

    def heat(self, operator: Operator) -> float:
        """Its share of the time that all of them took."""
        if operator.run is None or not self.total_seconds:
            return 0.0
        return operator.run.seconds / self.total_seconds

    def drawn(self) -> Drawn:
        """From the inputs down to the view."""
        names = {number: str(number) for number in self.operators}
        edges = [
            (names[below], names[number])
            for number, one in self.operators.items()
            for below in one.inputs
        ]
        heights = {
            names[number]: _PAD + _LINE * (2 + one.facts) for number, one in self.operators.items()
        }
        order = [names[number] for number in reversed(list(self.operators))]
        return laid_out(order, edges, (WIDTH, 0), (24, 30), heights=heights, downwards=True)


def parsed(text: str) -> list[Operator]:
    """The operators of a plan, in the order in which it prints them.

    >>> text = "Join a\\n  - keeps rows\\n  Input b\\n  Input c"
    >>> [(one.title, one.inputs) for one in parsed(text)]
    [('Join a', [1, 2]), ('Input b', []), ('Input c', [])]
    """
    found: list[Operator] = []
    above: list[Operator] = []
    for line in text.splitlines():
        said = line.lstrip(" ")
        depth = (len(line) - len(said)) // 2
        if said.startswith("- ") and found:
            found[-1].details.append(said[2:])
            continue
        operator = Operator(len(found), said, depth)
        del above[depth:]
        if above:
            above[-1].inputs.append(operator.number)
        above.append(operator)
        found.append(operator)
    return found


def plan_of(view: str, text: str, lines: Sequence[Line], runs: Sequence[ViewRun]) -> Plan | None:
    """A plan with its figures; None if the text is not as its figures say.

    A text of the query, printed in a plan, may look like an operator; then the numbers are others.
    """
    operators = parsed(text)
    for line in lines:
        if line.number == OUTPUT:
            continue
        if line.number >= len(operators) or operators[line.number].title != line.operator:
            return None
    output = Operator(OUTPUT, f"View {view}", 0, inputs=[0] if operators else [])
    found = {one.number: one for one in (output, *operators)}
    for number, one in found.items():
        one.lines = tuple(line for line in lines if line.number == number)
        one.run = last_of(runs, number)
    seconds = sum(one.run.seconds for one in found.values() if one.run is not None)
    return Plan(found, seconds)
