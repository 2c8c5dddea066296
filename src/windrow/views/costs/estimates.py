"""How many records each operator of a plan will keep, before anything runs.

    operator                    keeps                    records
    join                        rows of each side        distinct rows
    distinct                    distinct rows            groups
    reduce, accumulable         totals                   groups
    reduce, hierarchical        nothing, if monotonic    0
                                values, sorted           distinct (group, value)
                                values of each level     see `stacks`
    reduce, of DISTINCT values  distinct values          distinct (group, values)
    reduce, basic; windows      rows and results         distinct rows; groups, or rows again
    top k, monotonic            first rows               of each group at most k
    top k, sorted               rows and first rows      distinct rows; of each group at most k
    top k, bounded              rows                     distinct rows
    top k, a stack              rows of each level       see `stacks`

Groups and distinct rows are found by `sizes`, from samples of the inputs (see `sources`). Joins
take keys to be drawn from one domain, that of the side that has more of them before any filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from windrow.errors import WindrowError
from windrow.spark.catalyst import Catalyst
from windrow.views.costs.sizes import Column, Size, Sizes
from windrow.views.costs.sources import (
    MeasuredSource,
    UnionSource,
    constant_source,
    is_stretch,
    measure,
    stretch_source,
)
from windrow.views.costs.stacks import occupied, taken
from windrow.views.history.collections import Collection
from windrow.views.plan.hints import FAN_OUT
from windrow.views.plan.inner import InnerJoin
from windrow.views.plan.nodes import (
    Accumulate,
    Arrangement,
    Constant,
    Distinct,
    Input,
    Join,
    Node,
    Recompute,
    Reduce,
    Stateless,
    TopK,
    TopRows,
    ViewPlan,
    Windows,
)
from windrow.views.plan.tops import BoundedTop, MonotonicTop, SortedTop, StackedTop

# Shares of rows that a condition keeps, where its columns were not measured together.
_COMPARED, _LIKE, _UNKNOWN = 1 / 3, 0.1, 1 / 3
SAMPLED_FROM = 2_000  # rows of all inputs of a view; fewer are not worth a Spark job
_GENERATED = 4.0  # rows that a generator makes of one


@dataclass(frozen=True)
class Estimate:
    """Records that an arrangement is thought to have, and distinct keys among them."""

    records: float
    keys: float


def estimates(
    c: Catalyst, plan: ViewPlan, collections: Mapping[str, Collection], *, sampled: bool
) -> dict[str, Estimate]:
    """The estimate of each arrangement, and of the output, by name.

    Without samples, nothing but the number of rows is known of inputs: estimates are then bounds.
    """
    estimator = Estimator(c, {id: _net_rows(one) for id, one in collections.items()})
    found = estimator.plan(plan)
    if sampled:
        measure(c, estimator.sources, collections)
        found = estimator.plan(plan)
    return found


def estimated(
    c: Catalyst, plan: ViewPlan, collections: Mapping[str, Collection], *, always: bool = False
) -> dict[str, Estimate]:
    """As `estimates`; inputs that are small together are sampled only if it is asked for.

    A row for which an expression fails is not this one's to complain of: the fill will.
    """
    sampled = always or sum(_net_rows(one) for one in collections.values()) >= SAMPLED_FROM
    if sampled:
        with suppress(WindrowError, PySparkException, Py4JJavaError):
            return estimates(c, plan, collections, sampled=True)
    return estimates(c, plan, collections, sampled=False)


def _net_rows(collection: Collection) -> int:
    """How many rows a collection has, if each retraction takes one away."""
    return max(sum(part.rows - 2 * part.name.retractions for part in collection.parts), 0)


class Estimator:
    """Estimates one plan. Once its sources are measured, the same plan gives other figures."""

    def __init__(self, c: Catalyst, rows: Mapping[str, int]) -> None:
        self._c, self._rows = c, rows
        self._sizes = Sizes(c)
        self._stretches: dict[int, MeasuredSource] = {}
        self._bases: dict[int, MeasuredSource] = {}
        self._found: dict[str, Estimate] = {}
        self._filters: dict[tuple[int, str], Node] = {}

    @property
    def sources(self) -> list[MeasuredSource]:
        return [*self._stretches.values(), *self._bases.values()]

    def plan(self, plan: ViewPlan) -> dict[str, Estimate]:
        self._found = {}
        size = self._size(plan.root)
        self._arranged(size, plan.output)
        return self._found

    def _size(self, node: Node) -> Size:
        if is_stretch(node):
            return self._stretch(node)
        match node:
            case Constant():
                return Size.of(constant_source(node), self._attributes(node.java))
            case Stateless():
                return self._stateless(node)
            case Join():
                return self._join(node)
            case InnerJoin():
                return self._inner_join(node)
            case Distinct():
                return self._distinct(node)
            case Accumulate():
                return self._accumulate(node)
            case TopRows():
                return self._top_rows(node)
            case Recompute():
                return self._recompute(node)
        return self._other(node)

    def _other(self, node: Node) -> Size:
        """An operator without formulas of its own: it keeps and gives the rows of its inputs."""
        sizes = [self._size(one) for one in node.inputs]
        size = max(sizes, key=lambda one: one.rows)
        for one in node.arrangements:
            if one.expressions:
                self._arranged(size, one)
            else:
                self._known(one, size.rows, size.rows)
        return size

    def _stretch(self, node: Node) -> Size:
        if id(node) not in self._stretches:
            self._stretches[id(node)] = stretch_source(self._c, node, self._rows, self._bases)
        return Size.of(self._stretches[id(node)], self._attributes(node.java))

    def _attributes(self, java: Any) -> dict[int, Any]:
        return {self._c.id_of(one): one for one in self._c.output(java)}

    # What is kept.

    def _arranged(self, size: Size, one: Arrangement) -> Estimate:
        """Rows of a size, by key: the distinct ones."""
        return self._keep(one, self._sizes.distinct(size, one.expressions), size)

    def _keep(self, one: Arrangement, records: float, size: Size) -> Estimate:
        keys = self._sizes.distinct(size, key_expressions(one))
        self._found[one.name] = Estimate(records, min(keys, records))
        return self._found[one.name]

    def _known(self, one: Arrangement, records: float, keys: float) -> None:
        self._found[one.name] = Estimate(records, min(keys, records))

    def _stacked(
        self,
        size: Size,
        keys: Sequence[Any],
        columns: Sequence[Any],
        levels: Sequence[Sequence[Arrangement]],
        depth: int,
    ) -> None:
        """Levels of a stack: what each takes, and perhaps what it rejects."""

        def of_level(at: int, groups: float) -> float:
            return taken(groups, len(levels), depth)[at] if at < len(levels) else 0.0

        for at, (comes, *rejected) in enumerate(levels):
            subgroups = FAN_OUT ** (len(levels) - at - 1)

            def kept(one: float, at: int = at) -> float:
                return of_level(at, one)

            def found(one: float, at: int = at, subgroups: int = subgroups) -> float:
                return occupied(of_level(at, one), subgroups)

            def gone(one: float, at: int = at) -> float:
                return of_level(at, one) - of_level(at + 1, one)

            total = self._sizes.summed(size, keys, columns, kept)
            places = self._sizes.summed(size, keys, columns, found)
            self._known(comes, total, places)
            for one in rejected:
                self._known(one, self._sizes.summed(size, keys, columns, gone), places)

    # Operators without state, over others than inputs.

    def _stateless(self, node: Stateless) -> Size:
        c = self._c
        sizes = [self._size(one) for one in node.over]
        size = sizes[0]
        match node.operator:
            case "Union":
                attributes = c.output(node.java)
                own = [c.output(one.java) for one in node.over]
                source = UnionSource(self._sizes, sizes, attributes, own)
                return Size.of(source, self._attributes(node.java))
            case "Filter":
                return size.filtered(self._share(size, node.java.condition()))
            case "Project":
                is_aggregate = c.kind(node.java) == "Aggregate"
                values = (
                    c.split_aggregate(node.java).output
                    if is_aggregate
                    else c.items(node.java.projectList())
                )
                return self._projected(size, values)
            case "Expand":
                return self._expanded(node, size)
            case "Generate":
                return replace(size, rows=size.rows * _GENERATED, unique=())
        return size

    def _projected(self, size: Size, values: Sequence[Any]) -> Size:
        columns = dict(size.columns)
        for one in values:
            if self._c.kind(one) == "Alias":
                found = self._sizes.columns_of(size, one)
                if found is not None:
                    columns[self._c.id_of(one)] = found
        return replace(size, columns=columns)

    def _expanded(self, node: Stateless, size: Size) -> Size:
        """Each row several times, with NULL in place of some columns: grouping sets."""
        c = self._c
        rows = [c.items(row) for row in c.items(node.java.projections())]
        columns = dict(size.columns)
        for at, one in enumerate(c.output(node.java)):
            for row in rows:
                found = self._sizes.columns_of(size, row[at])
                if found:
                    columns[c.id_of(one)] = found
                    break
            else:
                columns.setdefault(c.id_of(one), ())
        return replace(size, rows=size.rows * len(rows), columns=columns, unique=())

    def _share(self, size: Size, condition: Any) -> float:
        """The share of rows for which a condition holds, if its parts are independent."""
        c = self._c
        kind = c.kind(condition)
        children = c.children(condition)
        if kind in ("And", "Or"):
            a, b = (self._share(size, one) for one in children)
            return a * b if kind == "And" else a + b - a * b
        if kind == "Not":
            return 1 - self._share(size, children[0])
        if kind == "IsNotNull" or all(self._sizes.columns_of(size, one) == () for one in children):
            return 1.0
        if kind in ("EqualTo", "EqualNullSafe"):
            return 1 / max(*(self._values(size, one) for one in children), 1.0)
        if kind in ("In", "InSet"):
            count = len(children) - 1 if kind == "In" else int(condition.hset().size())
            return min(1.0, count / max(self._values(size, children[0]), 1.0))
        if kind in ("StartsWith", "EndsWith", "Contains", "Like", "RLike"):
            return _LIKE
        comparison = kind.startswith(("LessThan", "GreaterThan"))
        return _COMPARED if comparison else _UNKNOWN

    def _values(self, size: Size, expression: Any) -> float:
        """Distinct values of an expression; 1 of what is constant or not known."""
        found = self._sizes.columns_of(size, expression)
        return self._sizes.distinct(size, [expression]) if found else 1.0

    # Joins.

    def _join(self, node: Join) -> Size:
        left, right = (
            self._side(one, condition, [arranged])
            for one, condition, arranged in (
                (node.left, node.filtered[0], node.left_arranged),
                (node.right, node.filtered[1], node.right_arranged),
            )
        )
        lk, rk = key_expressions(node.left_arranged), key_expressions(node.right_arranged)
        both = replace(left, columns={**left.columns, **right.columns})
        share = 1.0 if node.condition is None else self._share(both, node.condition)
        met = self._met(left, right, lk, rk, share)
        match node.kind:
            case "left semi":
                return left.filtered(met.left)
            case "left anti":
                return left.filtered(1 - met.left)
            case "existence":
                return left
        alone = left.rows * (1 - met.left)
        rows = {
            "left outer": met.pairs + alone,
            "full outer": met.pairs + alone + right.rows * (1 - met.right),
            "left single": left.rows,
        }[node.kind]
        single = self._is_unique(right, rk) or node.kind == "left single"
        unique = left.unique if single else ()
        return Size(rows, both.columns, {**left.kept, **right.kept}, unique)

    def _side(self, node: Node, condition: Any | None, kept: Sequence[Arrangement]) -> Size:
        """The rows of an input that a join looks at. Of relations, all rows are kept."""
        size = found = self._size(node)
        if condition is not None:
            if isinstance(node, Input):  # measured together: see `is_stretch`
                found = self._size(self._filtered(node, condition))
            else:
                found = size.filtered(self._share(size, condition))
        for one in kept:
            if one.is_kept:
                self._arranged(found if one.source is None else size, one)
        return found

    def _filtered(self, node: Input, condition: Any) -> Node:
        """A filter over an input; the same one whenever it is asked for."""
        text = str(condition.toString())
        if (id(node), text) not in self._filters:
            java = self._c.filter(condition, node.java)
            made = Stateless(node.identity, java, node.columns, (node,), "Filter", text)
            self._filters[id(node), text] = made
        return self._filters[id(node), text]

    def _inner_join(self, node: InnerJoin) -> Size:
        """One input after the other, along the path of the first."""
        sizes = [
            self._side(over, node.sides[at].filtered, [one for n, one in node.looked_up if n == at])
            for at, over in enumerate(node.over)
        ]
        size = sizes[0]
        for hop in node.paths[0]:
            lk = [node.sides[hop.source].columns[place] for place in hop.keys]
            rk = key_expressions(hop.arrangement)
            size = self._inner(size, sizes[hop.target], lk, rk)
        if node.residual is not None:
            size = size.filtered(self._share(size, node.residual))
        return self._projected(size, node.output)

    def _inner(
        self, left: Size, right: Size, lk: Sequence[Any], rk: Sequence[Any], share: float = 1.0
    ) -> Size:
        """Pairs of rows with equal keys, of which a share meets what else is asked of them."""
        met = self._met(left, right, lk, rk, share)
        columns = {**left.columns, **right.columns}
        self._equate(columns, lk, rk)
        unique = left.unique if self._is_unique(right, rk) else ()
        if self._is_unique(left, lk):
            unique += right.unique
        kept = {**left.filtered(met.left).kept, **right.filtered(met.right).kept}
        return Size(met.pairs, columns, kept, unique)

    def _met(
        self, left: Size, right: Size, lk: Sequence[Any], rk: Sequence[Any], share: float
    ) -> _Met:
        """Keys of both sides are drawn from one domain, each independently of the other."""
        dl, dr = self._sizes.distinct(left, lk), self._sizes.distinct(right, rk)
        known = [self._sizes.domain(left, lk), self._sizes.domain(right, rk)]
        domain = max(dl, dr, 1.0, *(one for one in known if one is not None))
        return _Met(
            left.rows * right.rows / domain * share,
            _any(share, right.rows / max(dr, 1.0)) * min(1.0, dr / domain),
            _any(share, left.rows / max(dl, 1.0)) * min(1.0, dl / domain),
        )

    def _is_unique(self, size: Size, keys: Sequence[Any]) -> bool:
        ids = {self._sizes.id_of(one) for one in keys}
        return any(one <= ids for one in size.unique)

    def _equate(
        self, columns: dict[int, tuple[Column, ...]], left: Sequence[Any], right: Sequence[Any]
    ) -> None:
        """After an inner join, each key is what the other one is, too."""
        for a, b in zip(left, right, strict=True):
            ids = self._sizes.id_of(a), self._sizes.id_of(b)
            if None not in ids and all(columns.get(id) for id in ids if id is not None):
                both = tuple(dict.fromkeys(o for id in ids if id is not None for o in columns[id]))
                for id in ids:
                    if id is not None:
                        columns[id] = both

    # Groups.

    def _groups(self, size: Size, keys: Sequence[Any]) -> float:
        return self._sizes.distinct(size, keys) if keys else 1.0

    def _grouped(self, size: Size, groups: float, keys: Sequence[Any]) -> Size:
        """One row for each group: its keys, and columns of which nothing is known."""
        columns = {}
        for one in keys:
            found = self._sizes.columns_of(size, one)
            if found is not None:
                columns[self._c.id_of(one)] = found
        unique = frozenset(self._c.id_of(one) for one in keys)
        return Size(groups, columns, size.kept, (unique,))

    def _distinct(self, node: Distinct) -> Size:
        size = self._size(node.over)
        groups = self._arranged(size, node.rows).records
        return self._grouped(size, groups, node.rows.expressions)

    def _accumulate(self, node: Accumulate) -> Size:
        size = self._size(node.over)
        groups = self._groups(size, node.keys if node.groups else ())
        self._known(node.totals, groups, groups)
        for value in () if node.extremes is None else node.extremes.values:
            columns = [*node.keys, node.values[value.value]]
            if node.extremes is not None and node.extremes.size is not None:
                levels = [value.stored[at : at + 2] for at in range(0, len(value.stored), 2)]
                self._stacked(size, node.keys, columns, levels, len(value.sides))
            else:
                for one in value.stored:
                    self._known(one, self._sizes.distinct(size, columns), groups)
        for numbers, one in node.sets:
            values = [node.values[number] for number in numbers]
            records = self._sizes.distinct(size, [*node.keys, *values])
            self._known(one, records, records)
        if node.basic is not None:
            self._arranged(size, node.basic.rows)
            self._known(node.basic.results, groups, groups)
        return self._grouped(size, groups, node.keys if node.groups else ())

    def _recompute(self, node: Recompute) -> Size:
        size = self._size(node.over)
        rows = self._arranged(size, node.rows)
        match node:
            case Reduce():
                keys = node.steps[0].keys
                groups = self._groups(size, keys)
                self._known(node.results, groups, rows.keys)
                return self._grouped(size, groups, keys)
            case TopK():
                left = max(size.rows - node.offset, 0.0)
                count = left if node.limit is None else min(left, float(node.limit))
                self._known(node.results, min(count, rows.records), 1.0)
                return size.filtered(count / size.rows if size.rows else 0.0)
            case Windows():
                self._known(node.results, rows.records, rows.keys)
        return size

    def _top_rows(self, node: TopRows) -> Size:
        size = self._size(node.over)
        columns = node.columns_of_rows
        names = node.schema.names
        keys = [columns[names.index(name)] for name in node.key]
        groups = self._groups(size, keys)
        depth = float(node.depth)
        tops = self._sizes.summed(size, keys, columns, lambda one: min(depth, one))
        match node:
            case StackedTop():
                levels = [(one,) for one in node.arrangements]
                self._stacked(size, keys, columns, levels, node.depth)
            case MonotonicTop():
                self._known(node.tops, tops, groups)
            case SortedTop() | BoundedTop():
                self._known(node.rows, self._sizes.distinct(size, columns), groups)
                if isinstance(node, SortedTop):
                    self._known(node.tops, tops, groups)
        rows = max(tops - groups * node.offset, 0.0)
        found = size.filtered(min(1.0, rows / size.rows) if size.rows else 0.0)
        if node.rank is None:
            return found
        # What is asked of the rank above, the first rows have already.
        return replace(found, columns={**found.columns, self._c.id_of(node.rank): ()})


@dataclass(frozen=True)
class _Met:
    """Pairs of a join, and the share of each side's rows that have at least one partner."""

    pairs: float
    left: float
    right: float


def _any(share: float, often: float) -> float:
    """How likely one of `often` pairs meets a condition that a share of all pairs meets."""
    return 1.0 if share >= 1 else float(1 - (1 - share) ** max(often, 1.0))


def key_expressions(one: Arrangement) -> list[Any]:
    """What an arrangement is keyed by; nothing, if it has no key."""
    if one.key == ("_all",):
        return []
    names = one.schema.names
    return [one.expressions[names.index(name)] for name in one.key]
