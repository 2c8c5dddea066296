"""Sizes of what flows between operators: how many rows, and how many distinct values of columns.

Columns are traced to *sources*, whose rows were measured: to a column of a source, or an expression
over several. So the distinct values of a set of columns are counted where they come from, all those
of one source together, whatever joins lie between:

    groups by (year(o_orderdate), n_name) over orders JOIN customer JOIN nation
       = distinct year(o_orderdate) of orders, of the rows that the joins leave
         * distinct n_name of nation, of the rows that the joins leave;    at most all rows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from windrow.spark.catalyst import Catalyst
from windrow.views.costs.distinct import remaining

Each = Callable[[float], float]  # from the size of a group; never more than that


class Source(Protocol):
    """Rows whose columns can be asked for how many distinct values they have together."""

    @property
    def rows(self) -> float: ...

    def distinct(self, expressions: Sequence[Any]) -> float: ...

    def domain(self, expressions: Sequence[Any]) -> float:
        """Distinct values before any filter."""
        ...

    def summed(self, groups: Sequence[Any], expressions: Sequence[Any], each: Each) -> float:
        """The sum over all groups of what follows from the number of their distinct values."""
        ...


@dataclass(frozen=True)
class Column:
    """An expression over the columns of a source."""

    source: Source
    expression: Any


@dataclass(frozen=True)
class Size:
    """The rows of an operator's output.

    `columns` says, by identity, where a column comes from: from one of several places that are
    equal, from none if it is constant; one that is missing is unknown. `kept` is the share of each
    source's rows that is left. Sets of columns that are `unique` tell rows apart.
    """

    rows: float
    columns: Mapping[int, tuple[Column, ...]]
    kept: Mapping[Source, float] = field(default_factory=dict)
    unique: tuple[frozenset[int], ...] = ()

    def filtered(self, share: float) -> Size:
        """With a share of its rows, no matter which."""
        kept = {source: one * share for source, one in self.kept.items()}
        return replace(self, rows=self.rows * share, kept=kept)

    @staticmethod
    def of(source: Source, attributes: Mapping[int, Any]) -> Size:
        """All rows of a source."""
        columns = {id: (Column(source, one),) for id, one in attributes.items()}
        return Size(source.rows, columns, {source: 1.0})


@dataclass(frozen=True)
class Sizes:
    """Questions about sizes. Which ones sources are asked does not depend on their answers."""

    c: Catalyst

    def distinct(self, size: Size, expressions: Sequence[Any]) -> float:
        """How many distinct rows of these expressions there are."""
        ids = {self.id_of(one) for one in expressions}
        if any(one <= ids for one in size.unique):
            return size.rows
        items = self._items(size, expressions)
        if items is None:
            return size.rows
        if not items:
            return min(1.0, size.rows)
        found = math.prod(
            self._left(size, source, columns) for source, columns in _shared_out(items)
        )
        for source in _with_all(items):
            found = min(found, self._left(size, source, _of(items, source)))
        return max(min(found, size.rows), min(1.0, size.rows))

    def domain(self, size: Size, expressions: Sequence[Any]) -> float | None:
        """Distinct values before filters; None if they come from several sources."""
        items = self._items(size, expressions)
        if not items:
            return None
        found = [source.domain(_of(items, source)) for source in _with_all(items)]
        return max(found, default=None)

    def summed(
        self, size: Size, groups: Sequence[Any], expressions: Sequence[Any], each: Each
    ) -> float:
        """The sum over all groups of what follows from the number of their distinct rows."""
        total = self.distinct(size, [*groups, *expressions])
        count = max(self.distinct(size, groups), 1.0)
        items, keys = self._items(size, [*groups, *expressions]), self._items(size, groups)
        if items and keys is not None:
            for source in _with_all(items):
                if size.kept.get(source, 1.0) > 0.99:
                    own = source.summed(_of(keys, source), _of(items, source), each)
                    return min(own, total)
        return min(count * each(total / count), total)

    def _left(self, size: Size, source: Source, columns: Sequence[Any]) -> float:
        return remaining(source.distinct(columns), source.rows, size.kept.get(source, 1.0))

    def columns_of(self, size: Size, expression: Any) -> tuple[Column, ...] | None:
        """Where an expression comes from; None if it is unknown, or from several sources."""
        c = self.c
        kind = c.kind(expression)
        if kind == "Alias":
            return self.columns_of(size, expression.child())
        if kind == "AttributeReference":
            return size.columns.get(c.id_of(expression))
        ids = list(dict.fromkeys(c.column_ids(expression)))
        if not ids:
            return ()
        known = [size.columns.get(id) for id in ids]
        found = []
        for source in dict.fromkeys(one.source for one in known[0] or ()):
            own = {}
            for id, columns in zip(ids, known, strict=True):
                column = next((one for one in columns or () if one.source is source), None)
                if column is not None:
                    own[id] = column.expression
            if len(own) == len(ids):
                found.append(Column(source, substituted(c, expression, own)))
        return tuple(found) or None

    def _items(self, size: Size, expressions: Sequence[Any]) -> list[tuple[Column, ...]] | None:
        """Where each expression comes from; where its columns do, if those are several sources.

        None if one is unknown.
        """
        items: list[tuple[Column, ...]] = []
        for one in expressions:
            found = self.columns_of(size, one)
            if found is not None:
                items += [found] if found else []
                continue
            parts = [size.columns.get(id) for id in dict.fromkeys(self.c.column_ids(one))]
            if not parts or any(part is None for part in parts):
                return None
            items += [part for part in parts if part]
        return items

    def id_of(self, expression: Any) -> int | None:
        """The identity of a column; None for what is none."""
        named = self.c.kind(expression) in ("AttributeReference", "Alias")
        return self.c.id_of(expression) if named else None


def substituted(c: Catalyst, expression: Any, found: Mapping[int, Any]) -> Any:
    """An expression with others in place of columns, by their identities."""

    def look(one: Any) -> Any | None:
        return found.get(c.id_of(one)) if c.kind(one) == "AttributeReference" else None

    return c.replaced(expression, look)


def _of(items: Sequence[tuple[Column, ...]], source: Source) -> list[Any]:
    """The expressions of a source among items."""
    firsts = (next((one for one in item if one.source is source), None) for item in items)
    return [one.expression for one in firsts if one is not None]


def _with_all(items: Sequence[tuple[Column, ...]]) -> list[Source]:
    """The sources that all items come from, or are equal to."""
    sources = dict.fromkeys(one.source for one in items[0])
    return [
        source
        for source in sources
        if all(any(one.source is source for one in item) for item in items)
    ]


def _shared_out(items: Sequence[tuple[Column, ...]]) -> list[tuple[Source, list[Any]]]:
    """Each item with one source, as few sources as a greedy choice finds."""
    left = list(items)
    found = []
    while left:
        counts: dict[Source, int] = {}
        for item in left:
            for source in dict.fromkeys(one.source for one in item):
                counts[source] = counts.get(source, 0) + 1
        best = max(counts, key=lambda source: counts[source])
        mine = [item for item in left if any(one.source is best for one in item)]
        left = [item for item in left if not any(one.source is best for one in item)]
        found.append((best, _of(mine, best)))
    return found
