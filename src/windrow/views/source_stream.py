"""The stream of a source: what was taken in of it is followed, like a shard.

Its rows have the number `BASE`, which no file has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import CommitConflictError, TimeRangeError
from windrow.shard.predicate import col
from windrow.shard.shard import Shard
from windrow.sources.stream_shard import open_stream, stream_rows
from windrow.views.source_found import BoundSource, Found
from windrow.views.source_numbers import BASE, NUMBER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _Followed:
    """What is new in a stream. Without `lower` it is another one, or has forgotten: then all that
    was taken over of it goes, and all of it comes."""

    bound: BoundSource
    shard: Shard
    lower: int | None
    upper: int

    def updates(self) -> DataFrame | None:
        from pyspark.sql import functions as F  # noqa: N812

        bound, table = self.bound, self.bound.tables["stream"]
        lower = self.shard.since if self.lower is None else self.lower
        rows = stream_rows(self.shard, (lower, self.upper), bound.session)
        rows = rows.withColumn(NUMBER, F.lit(BASE).cast("int"))
        frame = bound.stored(table.updates(rows))
        if self.lower is not None or not bound.collection.parts:
            return frame
        return frame.unionByName(bound.negated(col(NUMBER) == BASE, bound.stored_names))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until they are read, the shard forgets none of these updates."""
        time = self.shard.since if self.lower is None else self.lower - 1
        with ExitStack() as stack:
            try:
                stack.enter_context(self.shard.hold(time, reader=self.bound.what))
            except TimeRangeError as error:  # it was compacted after it was looked at
                raise CommitConflictError(f"{self.bound.what}: {error}") from error
            yield


def look_at_stream(bound: BoundSource, options: Mapping[str, str] | None) -> Found | None:
    """What is new in the stream of a source; None if nothing is, or if it never ran."""
    known = bound.state("stream")
    shard = open_stream(str(known["location"]), options)
    if shard is None:
        return None
    upper, taken = shard.upper, int(known.get("upper", 0))
    same = known.get("id") == shard.id
    if same and upper == taken:
        return None
    lower = taken if same and shard.since < taken <= upper else None
    followed = _Followed(bound, shard, lower, upper)
    signed = bound.tables["stream"].signs is not None
    again = lower is None and "id" in known
    return Found(
        {"tables": {"stream": {**known, "id": shard.id, "upper": upper}}},
        {"stream": [taken, upper]},
        followed.updates,
        signed,
        [f"stream {shard.uri}"] if signed or again else [],
        held=followed.held,
    )
