"""A shard as a source: its updates are followed from the time up to which they were taken over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.shard.predicate import col
from windrow.shard.shard import Shard
from windrow.spark.schemas import quoted
from windrow.updates import DIFF
from windrow.views.sources.following import Progress, held
from windrow.views.sources.found import BoundSource, Found, difference
from windrow.views.sources.numbers import BASE, MISSING, NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _Followed:
    """What is new in a shard; if `lower` is None, all of it is compared with what is stored."""

    bound: BoundSource
    shard: Shard
    lower: int | None
    upper: int

    def updates(self) -> DataFrame | None:
        from pyspark.sql import functions as F  # noqa: N812

        bound, table = self.bound, self.bound.tables["shard"]
        if self.upper == 0:
            read = None
        elif self.lower is None:
            read = self.shard.snapshot(self.upper - 1)
        else:
            read = self.shard.changes(self.lower, self.upper)
        frames = []
        if read is not None:
            rows = read.dataframe(bound.session).withColumn(NUMBER, F.lit(BASE).cast("int"))
            frames.append(bound.stored(table.updates(rows)))
        if self.lower is not None or not bound.collection.parts:
            return frames[0] if frames else None
        frames.append(bound.negated(col(NUMBER) != MISSING, bound.names))
        changed = difference(frames, bound.names)
        columns = [F.col(quoted(name)) for name in bound.names]
        number = F.lit(BASE).cast("int").alias(NUMBER)
        return changed.select(*columns, number, F.col(DIFF))

    def held(self) -> AbstractContextManager[None]:
        time = max(self.upper - 1, 0) if self.lower is None else self.lower - 1
        return held(self.shard, time, self.bound.what)


def look_at_shard(bound: BoundSource, options: Mapping[str, str] | None) -> Found | None:
    """A source that is a shard."""
    known = bound.state("shard")
    shard = Shard.open(str(known["location"]), storage_options=options)
    progress = Progress.of(shard, known)
    if progress is None:
        return None
    lower, upper = progress.lower, progress.upper
    note: dict[str, Any] = {"from": progress.taken, "to": upper}
    if lower is None and "id" in known:
        note["as a whole"] = (
            "its history was compacted beyond that" if progress.same else "it is another shard"
        )
    followed = _Followed(bound, shard, lower, upper)
    return Found(
        {"tables": {"shard": progress.reached(known)}},
        note,
        followed.updates,
        True,
        [f"shard {shard.uri}"],
        held=followed.held,
    )
