"""Ingesting inputs into arrangements; rows without a time are quarantined."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from windrow.arrangements.build import Builder
from windrow.arrangements.find import whole
from windrow.errors import StorageError
from windrow.features.plan.arrangement import PlannedArrangement
from windrow.features.plan.passes import PassPlan
from windrow.features.run.results import commit_result, frame_schema, write_frame
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.requested import RequestedRows
from windrow.shard.shard import Shard
from windrow.sources.pieces import Piece
from windrow.spark.errors import known_errors
from windrow.spark.stages import Stages
from windrow.storage.store import Store


def ingest(
    stages: Stages, one: PlannedArrangement, work: Store, reader: str, holds: ExitStack
) -> tuple[Shard, PlannedArrangement]:
    """The arrangement, with all pending inputs ingested, held until `holds` close.

    It is returned with what was done, which may differ from the plan if another process was first.
    """
    if one.inputs.shard is not None:
        return one.inputs.shard, one
    content, rows = one.inputs.content, one.pending_rows
    shard, todo = builder(stages, reader).build(content, one.todo, rows, work, holds)
    return shard, replace(one, todo=todo)


def hold_sources(known: Sequence[PlannedArrangement], reader: str, holds: ExitStack) -> None:
    """Keep the history of shards that are sources, as far back as it was planned with."""
    shards = {p.shard.uri: p.shard for one in known for p in one.inputs.content.pieces if p.shard}
    for shard in shards.values():
        try:
            holds.enter_context(shard.hold(shard.since, reader=reader))
        except StorageError as error:
            warnings.warn(
                f"{error}: the source cannot be held while it is read; do not vacuum it meanwhile",
                stacklevel=2,
            )


def builder(stages: Stages, reader: str = "a run") -> Builder:
    return Builder(stages, lambda piece, name: quarantine(stages, piece, name), reader)


def gather(
    stages: Stages, known: Sequence[PlannedArrangement], one: PassPlan, job: SliceJob, work: Store
) -> dict[int, Shard]:
    """The rows of requested keys, arranged for this run alone."""
    shards = {}
    with stages.stage("gather rows of requested keys", one.events):
        for number in sorted(set(one.arrangements)):
            content = known[number].inputs.content
            shard = builder(stages).open(f"{work.uri}/requested-{content.name}", content)
            narrow = RequestedRows(job, content.key_schema)
            for place, step in enumerate(whole(content)):
                mark = f"requested-{place}"
                if shard.marked(mark) is None:
                    builder(stages).append(content, step, shard, mark, narrow)
            shards[number] = shard
    return shards


def quarantine(stages: Stages, piece: Piece, name: str) -> None:
    """Store the rows that have no time where someone can look at them; count what is ignored."""
    early = piece.early()
    if early is not None:
        with known_errors():
            stages.add("early_mutations", early.count())
    if piece.never_rejects():
        return
    rows = piece.rejected()
    with known_errors():
        if rows.isEmpty():
            return
    store = Store.at(f"{stages.store.uri}/quarantine/{name}", stages.store.options_dict)
    written = write_frame(rows, store, stages.id)
    commit_result(store, frame_schema(rows), written.parts)
    found = sum(part.rows for part in written.parts)
    stages.add("quarantined", found)
    stages.add("raw_rows", found)
