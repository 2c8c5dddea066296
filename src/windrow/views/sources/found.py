"""What is new in a source, before it is read; and stored rows, taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from windrow.shard.predicate import Predicate
from windrow.spark.schemas import quoted
from windrow.updates import DIFF
from windrow.views.history.collections import Collection
from windrow.views.relations.names import Relation
from windrow.views.sources.numbers import BASE, NUMBER
from windrow.views.sources.tables import AT, SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BoundSource:
    """A source at work: its relation, its tables, and what is stored of it."""

    relation: Relation
    tables: Mapping[str, SourceTable]
    collection: Collection
    session: SparkSession

    @property
    def what(self) -> str:
        return f"source {self.relation.name}"

    @property
    def dated(self) -> bool:
        """Whether stored updates have a time of their own (see `AT`)."""
        return {"snapshots", "mutations"} <= set(self.tables)

    @property
    def names(self) -> list[str]:
        return list(self.relation.schema.names)

    @property
    def stored_names(self) -> list[str]:
        return [*self.names, NUMBER, *([AT] if self.dated else [])]

    def state(self, role: str) -> Mapping[str, Any]:
        """What the catalogue says of a table."""
        found: Mapping[str, Any] = self.relation.definition["tables"][role]
        return found

    def stored(self, updates: DataFrame) -> DataFrame:
        """Updates in the form that they are stored in."""
        from pyspark.sql import functions as F  # noqa: N812

        others = [*self.stored_names[len(self.names) :], DIFF]
        frame = self.relation.storable.to_stored(updates, *others)
        return frame.select(*(F.col(quoted(name)) for name in [*self.stored_names, DIFF]))

    def negated(self, where: Predicate | None, names: Sequence[str]) -> DataFrame:
        """What is stored, with the opposite sign."""
        from pyspark.sql import functions as F  # noqa: N812

        read = self.collection.snapshot(columns=list(names), where=where)
        columns = [F.col(quoted(name)) for name in names]
        return read.dataframe(self.session).select(*columns, (-F.col(DIFF)).alias(DIFF))


@dataclass(frozen=True)
class Found:
    """What is new in a source. Nothing of it has been read, but for names and logs.

    `state` is what the catalogue says afterwards. `updates` gives them in their stored form; if it
    `retracts`, rows may go that are not there. `gone` says what rows that go were in, if any may
    go. `moved` tells whether the files that it reads have changed since; `held` is a block in which
    they do not.
    """

    state: Mapping[str, Any]
    note: Mapping[str, Any]
    updates: Callable[[], DataFrame | None]
    retracts: bool
    gone: Sequence[str] = ()
    moved: Callable[[], bool] = lambda: False
    held: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


def both(first: Found, second: Found) -> Found:
    """What is new in two tables of a source, in one commit."""

    def updates() -> DataFrame | None:
        frames = [frame for one in (first, second) if (frame := one.updates()) is not None]
        return reduce(lambda a, b: a.unionByName(b), frames) if frames else None

    @contextmanager
    def held() -> Iterator[None]:
        with first.held(), second.held():
            yield

    tables = {**first.state["tables"], **second.state["tables"]}
    return Found(
        {**first.state, **second.state, "tables": tables},
        {**first.note, **second.note},
        updates,
        first.retracts or second.retracts,
        [*first.gone, *second.gone],
        lambda: first.moved() or second.moved(),
        held,
    )


def with_base(updates: DataFrame, at: int | None = None) -> DataFrame:
    """Updates of rows that are not of a file."""
    from pyspark.sql import functions as F  # noqa: N812

    found = updates.withColumn(NUMBER, F.lit(BASE).cast("int"))
    return found if at is None else found.withColumn(AT, F.lit(at).cast("long"))


def difference(frames: Sequence[DataFrame], names: Sequence[str]) -> DataFrame:
    """The sum of updates: each row once, without those that cancel."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.col(quoted(name)) for name in names]
    whole = reduce(lambda a, b: a.unionByName(b), [f.select(*columns, F.col(DIFF)) for f in frames])
    summed = whole.groupBy(*columns).agg(F.sum(DIFF).alias(DIFF))
    return summed.where(F.col(DIFF) != 0)
