"""A shard as a source: its updates are followed from the time up to which they were taken over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import CommitConflictError, TimeRangeError
from windrow.shard.predicate import col
from windrow.shard.shard import Shard
from windrow.spark.schemas import quoted
from windrow.updates import DIFF
from windrow.views.source_found import BoundSource, Found, difference
from windrow.views.source_numbers import BASE, MISSING, NUMBER

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

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until they are read, the shard forgets none of these updates."""
        time = max(self.upper - 1, 0) if self.lower is None else self.lower - 1
        with ExitStack() as stack:
            try:
                stack.enter_context(self.shard.hold(time, reader=self.bound.what))
            except TimeRangeError as error:  # it was compacted after it was looked at
                raise CommitConflictError(f"{self.bound.what}: {error}") from error
            yield


def look_at_shard(bound: BoundSource, options: Mapping[str, str] | None) -> Found | None:
    """A source that is a shard."""
    known = bound.state("shard")
    shard = Shard.open(str(known["location"]), storage_options=options)
    upper, taken = shard.upper, int(known.get("upper", 0))
    same = known.get("id") == shard.id
    if same and upper == taken:
        return None
    # At `since`, what happened then and what happened before cannot be told apart.
    follows = same and shard.since < taken <= upper
    why = None
    if not follows and "id" in known:
        why = "its history was compacted beyond that" if same else "it is another shard"
    followed = _Followed(bound, shard, taken if follows else None, upper)
    note = {"from": taken, "to": upper}
    return Found(
        {"tables": {"shard": {**known, "id": shard.id, "upper": upper}}},
        note if why is None else {**note, "as a whole": why},
        followed.updates,
        True,
        [f"shard {shard.uri}"],
        held=followed.held,
    )
