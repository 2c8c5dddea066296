"""The stream of a source: what was taken in of it is followed, like a shard.

Its rows have the number `BASE`, which no file has.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.shard.predicate import col
from windrow.shard.shard import Shard
from windrow.sources.stream_shard import open_stream, stream_rows
from windrow.views.sources.following import Progress, held
from windrow.views.sources.found import BoundSource, Found
from windrow.views.sources.numbers import BASE, NUMBER

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

    def held(self) -> AbstractContextManager[None]:
        time = self.shard.since if self.lower is None else self.lower - 1
        return held(self.shard, time, self.bound.what)


def look_at_stream(bound: BoundSource, options: Mapping[str, str] | None) -> Found | None:
    """What is new in the stream of a source; None if nothing is, or if it never ran."""
    known = bound.state("stream")
    shard = open_stream(str(known["location"]), options)
    progress = None if shard is None else Progress.of(shard, known)
    if shard is None or progress is None:
        return None
    lower, upper = progress.lower, progress.upper
    followed = _Followed(bound, shard, lower, upper)
    signed = bound.tables["stream"].signs is not None
    again = lower is None and "id" in known
    return Found(
        {"tables": {"stream": progress.reached(known)}},
        {"stream": [progress.taken, upper]},
        followed.updates,
        signed,
        [f"stream {shard.uri}"] if signed or again else [],
        held=followed.held,
    )
