"""Inner joins of two or more inputs, as an operator of a plan.

A change of an input takes a *path*: it is looked up in one input after the other, each by the key
that an edge of the join's tree gives. With n inputs there are n paths, and nothing is kept but the
inputs by the keys they are looked up by. A chain of operators with two inputs each is the linear
plan: there, what one gives is kept as an input of the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from windrow.views.plan.nodes import Arrangement, Node, by_name
from windrow.views.plan.texts import EVERYTHING


@dataclass(frozen=True)
class JoinInput:
    """An input of a join: its columns as far as they matter, and a filter for what changes.

    `columns` are named expressions over its rows. `filtered` is Spark's condition, which is
    evaluated again for rows that were looked up where those are kept without it.
    """

    label: str
    columns: tuple[Any, ...] = field(repr=False, compare=False)
    names: tuple[str, ...]
    filtered: Any | None = field(repr=False, compare=False)
    text: str


@dataclass(frozen=True)
class Hop:
    """A step of a path: columns of an input that is known already find rows of another.

    `keys` are the places of these columns, in the order of the arrangement's key. Without any,
    all rows are found.
    """

    source: int
    keys: tuple[int, ...]
    target: int
    arrangement: Arrangement


@dataclass(frozen=True)
class InnerJoin(Node):
    """`paths` has one for each input. What is left of the conditions is evaluated by Spark.

    Inputs are ordered: a path sees those before its own as they are after the change, and those
    after it as they were, so that rows that change together meet once.
    """

    only_adds: ClassVar[bool] = True

    over: tuple[Node, ...]
    sides: tuple[JoinInput, ...]
    keys: tuple[str, ...]
    paths: tuple[tuple[Hop, ...], ...]
    rest: str | None
    condition: Any | None = field(repr=False, compare=False)
    residual: Any | None = field(repr=False, compare=False)  # of it, what is not of one input alone
    output: tuple[Any, ...] = field(repr=False, compare=False)  # named expressions
    reason: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.over

    @property
    def looked_up(self) -> tuple[tuple[int, Arrangement], ...]:
        """What each input is looked up in, by the number of the input; each once for it."""
        found: dict[tuple[int, str], Arrangement] = {}
        for path in self.paths:
            for hop in path:
                found.setdefault((hop.target, hop.arrangement.name), hop.arrangement)
        ordered = sorted(found.items(), key=lambda one: one[0][0])
        return tuple((number, one) for (number, _), one in ordered)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return tuple(by_name([one for _, one in self.looked_up if one.is_kept]).values())

    @property
    def title(self) -> str:
        return f"Join inner on {', '.join(self.keys) or 'everything'}"

    @property
    def details(self) -> tuple[str, ...]:
        lines = [] if self.rest is None else [f"where {self.rest}"]
        if self.reason:
            lines.append(self.reason)
        if len(self.over) > 2:
            for number, path in enumerate(self.paths):
                steps = ", ".join(self._step(hop) for hop in path)
                lines.append(f"path of {self.sides[number].label}: {steps}")
        elif not self.keys:
            lines.append("no equality: a change of one side meets all rows of the other")
        for one in self.sides:
            if one.text:
                lines.append(f"changes of {one.label}: {one.text}")
        for number, kept in self.looked_up:
            if not kept.is_kept:
                lines.append(f"looks {self.sides[number].label} up in {kept}")
        return tuple(lines)

    def _step(self, hop: Hop) -> str:
        key = [name for name in hop.arrangement.key if name != EVERYTHING]
        by = f" by ({', '.join(key)})" if hop.keys else ""
        return f"{self.sides[hop.target].label}{by}"
