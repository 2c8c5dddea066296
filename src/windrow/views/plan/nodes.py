"""The plan of a view: every decision, as data.

A plan is a tree of operators over the changes of its inputs. An operator with state says which
collections it keeps, by what key, with which columns; operators of any view that need the same
collection share it, since it is named by what it holds.

Expressions stay Spark's: an operator holds the node of Spark's plan that it came from (`java`),
and what is printed is its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from windrow.rows.sortkeys import Direction
from windrow.views.plan.hints import GroupSize
from windrow.views.plan.reductions import Accumulated, Extreme


@dataclass(frozen=True)
class Results:
    """How the results of groups follow from their totals: functions, and the results' types."""

    functions: tuple[Accumulated | Extreme, ...]
    types: tuple[pa.DataType, ...]


@dataclass(frozen=True)
class Arrangement:
    """A collection that an operator keeps: rows of an operator's input or output, by key.

    `name` is a digest of what it holds. `expressions` give its columns from the rows that it is
    about, in the order of `schema`.

    Rows of a relation (`source` is its collection) are kept for all operators that look them up
    by this key: the collection may have more columns than `schema`. Without a key, they are
    those of the relation itself. `results` says that rows follow from a reduction's totals.
    """

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    what: str
    expressions: tuple[Any, ...] = field(repr=False, compare=False)
    order: tuple[str, ...] = ()  # columns by which the rows of a key are sorted
    source: str | None = None
    results: Results | None = field(default=None, repr=False, compare=False)

    @property
    def is_kept(self) -> bool:
        """Whether it is a collection of its own; otherwise it is kept anyway, by another name."""
        return self.results is None and (self.source is None or self.key != ("_all",))

    def __str__(self) -> str:
        by = ", ".join(name for name in self.key if name != "_all") or "nothing"
        columns = [name for name in self.schema.names if name != "_all"]
        order = f" in the order of {', '.join(self.order)}" if self.order else ""
        return f"{self.what} by ({by}){order}: {', '.join(columns) or 'no columns'}"


def by_name(arrangements: Sequence[Arrangement]) -> dict[str, Arrangement]:
    """Each once; the rows of a relation have the columns that any of their users needs."""
    found: dict[str, Arrangement] = {}
    for one in arrangements:
        known = found.get(one.name)
        if known is not None and known.source is not None:
            names = set(known.schema.names)
            more = [at for at, name in enumerate(one.schema.names) if name not in names]
            one = replace(
                known,
                schema=pa.schema([*known.schema, *(one.schema.field(at) for at in more)]),
                expressions=(*known.expressions, *(one.expressions[at] for at in more)),
            )
        found[one.name] = one
    return found


@dataclass(frozen=True)
class Node:
    """An operator. `identity` is equal for operators that compute the same from the same inputs.

    `only_adds`: as long as no row of its inputs is retracted, none of its own is.
    """

    only_adds: ClassVar[bool] = False

    identity: str
    java: Any = field(repr=False, compare=False)
    columns: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """The collections that it keeps, its inputs' first."""
        return ()

    @property
    def stacks(self) -> tuple[tuple[Arrangement, ...], ...]:
        """Levels of candidates over hashed groups, if it keeps some: what comes into each level.

        The first level of a stack, which takes all rows, comes first.
        """
        return ()

    @property
    def title(self) -> str:
        return type(self).__name__

    @property
    def details(self) -> tuple[str, ...]:
        """What `explain` says beneath the title."""
        return ()

    def walk(self) -> Iterator[Node]:
        """This operator and all beneath it, inputs first."""
        for one in self.inputs:
            yield from one.walk()
        yield self


@dataclass(frozen=True)
class Input(Node):
    """The changes of a table, a source or another view. `append_only`: none is a retraction."""

    relation: str
    collection: str
    append_only: bool = False

    @property
    def title(self) -> str:
        return f"Input {self.relation}"


@dataclass(frozen=True)
class Constant(Node):
    """Rows of the query itself: there from the beginning, and never changing."""


@dataclass(frozen=True)
class Stateless(Node):
    """An operator that handles each change by itself: Spark's own, with `_diff` beside it."""

    only_adds = True

    over: tuple[Node, ...]
    operator: str
    text: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.over

    @property
    def title(self) -> str:
        return f"{self.operator} {self.text}".strip()


@dataclass(frozen=True)
class Join(Node):
    """Changes of each side meet the other side. `rest` is what is left of the condition.

    `filtered` chooses among the changes of each side. Rows of a relation are looked up without
    that: what they have to fulfil is part of the condition for the right side, and `above` for the
    left. `output` gives the columns from those of both sides.
    """

    kind: str
    left: Node
    right: Node
    left_arranged: Arrangement
    right_arranged: Arrangement
    keys: tuple[str, ...]
    rest: str | None
    condition: Any = field(repr=False, compare=False)
    swapped: bool  # a right outer join, computed as a left one
    filtered: tuple[Any, Any] = field(repr=False, compare=False)
    texts: tuple[str, str]
    above: Any | None = field(repr=False, compare=False)
    output: tuple[Any, ...] = field(repr=False, compare=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        both = [self.left_arranged, self.right_arranged]
        return tuple(by_name([one for one in both if one.is_kept]).values())

    @property
    def title(self) -> str:
        return f"Join {self.kind} on {', '.join(self.keys) or 'everything'}"

    @property
    def details(self) -> tuple[str, ...]:
        lines = [] if self.rest is None else [f"where {self.rest}"]
        if not self.keys:
            lines.append("no equality: a change of one side meets all rows of the other")
        elif self.kind != "inner" and self.rest is not None:
            lines.append("computes all pairs of touched keys")
        for side, text, kept in (
            ("left", self.texts[0], self.left_arranged),
            ("right", self.texts[1], self.right_arranged),
        ):
            if text:
                lines.append(f"changes of the {side} side: {text}")
            if not kept.is_kept:
                lines.append(f"looks the {side} side up in {kept}")
        return tuple(lines)


@dataclass(frozen=True)
class Distinct(Node):
    """Each row once, while it is there at all: rows are counted, and nothing is computed."""

    only_adds = True

    over: Node
    rows: Arrangement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.over,)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return (self.rows,)


@dataclass(frozen=True)
class Recompute(Node):
    """Spark computes the groups that changes touch, and what it computed last is retracted."""

    over: Node
    rows: Arrangement  # what goes in, by group
    results: Arrangement  # what came out, by group
    steps: tuple[Any, ...] = field(repr=False, compare=False)  # of Spark's plan, the first first

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.over,)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        return (self.rows, self.results)

    @property
    def has_key(self) -> bool:
        return self.rows.key != ("_all",)

    @property
    def details(self) -> tuple[str, ...]:
        return () if self.has_key else ("no key: any change computes over all rows",)


@dataclass(frozen=True)
class Reduce(Recompute):
    """Aggregate functions by group. `why` says who wants it so, if another plan would do."""

    groups: tuple[str, ...]
    functions: tuple[str, ...]
    why: str = ""

    @property
    def details(self) -> tuple[str, ...]:
        basic = f"basic: computed of all rows of a touched group; {self.why}"
        return (*([basic] if self.why else []), *super().details)

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        return f"Reduce {', '.join(self.functions)}{by}"


@dataclass(frozen=True)
class Basic:
    """Functions of an aggregate that Spark computes, of all rows of a touched group.

    `rows` are kept with the columns that they need, and `results` with those of all functions.
    """

    functions: tuple[Any, ...] = field(repr=False, compare=False)
    texts: tuple[str, ...]
    rows: Arrangement
    results: Arrangement


_HOW = {
    "monotonic": "the best value so far is all that is kept",
    "sorted": "the next value is found in the sorted ones",
    "bucketed": "the next value advances from its subgroup",
}


@dataclass(frozen=True)
class ExtremeValue:
    """A value of min or max by its number, and which of them are wanted (True: the largest).

    `stored` is what is kept of it: nothing, one collection in order, or of each level what comes
    into it and what it rejects (the last rejects nothing).
    """

    value: int
    sides: tuple[bool, ...]
    stored: tuple[Arrangement, ...]


@dataclass(frozen=True)
class Extremes:
    """How min and max are maintained: `plan` is monotonic, sorted or bucketed, and `why`.

    `size` is that of groups, for which a bucketed plan has its levels.
    """

    plan: str
    why: str
    values: tuple[ExtremeValue, ...]
    size: GroupSize | None

    @property
    def arrangements(self) -> list[Arrangement]:
        return [one for value in self.values for one in value.stored]

    def __str__(self) -> str:
        levels = "" if self.size is None else f", {self.size.levels} levels for {self.size}"
        return f"hierarchical, {self.plan}: {_HOW[self.plan]}{levels}; {self.why}"


@dataclass(frozen=True)
class Accumulate(Node):
    """Aggregate functions by group, whose states are updated by what changes.

    `keys` and `values` are named expressions over the input. `totals` holds a row for each group:
    how many rows it has, and the state of each function. What min and max need beside it is told by
    `extremes`; values of DISTINCT functions are `sets`, each with how often it is there.
    """

    over: Node
    groups: tuple[str, ...]
    texts: tuple[str, ...]
    keys: tuple[Any, ...] = field(repr=False, compare=False)
    values: tuple[Any, ...] = field(repr=False, compare=False)
    functions: tuple[Accumulated | Extreme, ...]
    results: tuple[Any, ...] = field(repr=False, compare=False)
    output: tuple[Any, ...] = field(repr=False, compare=False)
    totals: Arrangement
    extremes: Extremes | None
    sets: tuple[tuple[tuple[int, ...], Arrangement], ...]  # by the numbers of the values
    basic: Basic | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.over,)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        kept = [] if self.extremes is None else self.extremes.arrangements
        sets = [one for _, one in self.sets]
        basic = [] if self.basic is None else [self.basic.rows, self.basic.results]
        return (self.totals, *kept, *sets, *basic)

    @property
    def stacks(self) -> tuple[tuple[Arrangement, ...], ...]:
        if self.extremes is None or self.extremes.size is None:
            return ()
        return tuple(value.stored[::2] for value in self.extremes.values)

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.groups)}" if self.groups else ""
        return f"Reduce {', '.join(self.texts)}{by}"

    @property
    def details(self) -> tuple[str, ...]:
        lines = []
        if any(isinstance(one, Accumulated) and not one.distinct for one in self.functions):
            lines.append("accumulable: states are updated in place, no values are kept")
        if self.sets:
            lines.append("accumulable over distinct values: their changes update states in place")
        if self.extremes is not None:
            lines.append(str(self.extremes))
        if self.basic is not None:
            texts = ", ".join(self.basic.texts)
            lines.append(f"basic: {texts}: computed of all rows of a touched group")
        return tuple(lines)


@dataclass(frozen=True)
class Windows(Recompute):
    """Window functions over partitions."""

    partition: tuple[str, ...]
    functions: tuple[str, ...]

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.partition)}" if self.partition else ""
        return f"Windows {', '.join(self.functions)}{by}"


@dataclass(frozen=True)
class TopK(Recompute):
    """The first rows by an order, ties decided by the whole row; `why` Spark computes them."""

    order: tuple[str, ...]
    limit: int | None
    offset: int
    why: str

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.order)}" if self.order else " by the whole row"
        limit = "all" if self.limit is None else self.limit
        return f"TopK {limit}{f' after {self.offset}' if self.offset else ''}{by}"

    @property
    def details(self) -> tuple[str, ...]:
        return (f"basic: Spark computes it ({self.why})", *super().details)


@dataclass(frozen=True)
class TopRows(Node):
    """The first rows of each group, by an order that decides; see `windrow.views.run.topping`.

    What is kept depends on the plan: see `windrow.views.plan.tops`. Rows have the columns of
    `schema`: `columns_of_rows`, named expressions the first `width` of which are the input's own,
    and order keys. `others` are expressions that the order needs beyond them. `why` says why this
    plan was chosen.
    """

    over: Node
    schema: pa.Schema
    key: tuple[str, ...]
    columns_of_rows: tuple[Any, ...] = field(repr=False, compare=False)
    others: tuple[Any, ...] = field(repr=False, compare=False)
    directions: tuple[tuple[int, Direction], ...]
    peers: int
    width: int
    groups: tuple[str, ...]
    order: tuple[str, ...]
    function: str
    limit: int
    offset: int
    rank: Any | None = field(repr=False, compare=False)  # the attribute of the rank, if it is given
    why: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.over,)

    @property
    def depth(self) -> int:
        """How many rows of a group matter: those that are given, and those before them."""
        return self.limit + self.offset

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.order)}" if self.order else " by the whole row"
        of = f" of each {', '.join(self.groups)}" if self.groups else ""
        rank = "" if self.function == "row_number" else f" ({self.function})"
        return f"TopK {self.limit}{rank}{f' after {self.offset}' if self.offset else ''}{by}{of}"


@dataclass(frozen=True)
class ViewPlan:
    """The plan of a view: its operators, and the collection that holds its rows."""

    root: Node
    output: Arrangement
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of joins: plan and reason

    def nodes(self) -> list[Node]:
        return list(self.root.walk())

    def operators(self) -> list[Node]:
        """All operators in the order in which they are printed: each before its inputs."""

        def found(node: Node) -> Iterator[Node]:
            yield node
            for one in node.inputs:
                yield from found(one)

        return list(found(self.root))

    @property
    def inputs(self) -> list[Input]:
        return [node for node in self.nodes() if isinstance(node, Input)]

    @property
    def arrangements(self) -> dict[str, Arrangement]:
        """All collections of the operators by name, each once."""
        return by_name([one for node in self.nodes() for one in node.arrangements])

    def __str__(self) -> str:
        return self.text()

    def text(
        self,
        about: Callable[[Node], Sequence[str]] = lambda node: (),
        size: Callable[[Arrangement], str] = lambda arrangement: "",
    ) -> str:
        """The tree of operators; with more lines `about` each, and the `size` of what is kept."""
        lines: list[str] = []

        def show(node: Node, depth: int) -> None:
            pad = "  " * depth
            lines.append(f"{pad}{node.title}")
            lines.extend(f"{pad}  - {detail}" for detail in node.details)
            lines.extend(f"{pad}  - keeps {one}{size(one)}" for one in node.arrangements)
            lines.extend(f"{pad}  - {line}" for line in about(node))
            for one in node.inputs:
                show(one, depth + 1)

        show(self.root, 0)
        return "\n".join(lines)
