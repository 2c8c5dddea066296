"""The stage that arranges: what is not there yet is appended, step by step.

An append carries the digest of its manifest, so that a run that is interrupted goes on after the
last one. Rows that have no time are kept aside before their step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from windrow.arrangements.find import Step, sweep, whole
from windrow.errors import ShardNotFoundError
from windrow.features.inputs.groups import EVENT_ORDER, GroupInputs
from windrow.features.plan.arranging import Arranging
from windrow.features.plan.backfill import PassPlan
from windrow.features.run.results import commit_result, frame_schema, write_frame
from windrow.features.run.stages import Stages
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.requested import AskedRows
from windrow.shard.append import TaskRows
from windrow.shard.shard import Shard
from windrow.sources.pieces import Piece
from windrow.spark.errors import known_errors
from windrow.spark.session import parallelism
from windrow.storage.store import Store

RUNS = 64  # of about one size, that an arrangement may have before they are merged


def arrange(stages: Stages, one: Arranging, work: Store) -> Shard:
    """The arrangement, with everything taken in that is not there yet."""
    todo, inputs = one.todo, one.inputs
    uri = todo.uri or f"{work.uri}/{one.name}"
    shard = _shard(stages, uri, inputs)
    if not todo.pending:
        return shard
    todo.manifest.write(Store.at(uri, stages.store.options_dict))
    titles = ", ".join(source.name for source in inputs.group.sources)
    with stages.stage(f"arrange {titles}", one.pending_rows):
        for number, step in enumerate(todo.manifest.steps):
            if number < todo.done:
                continue
            token = f"{todo.manifest.digest}-{number}"
            pieces = []
            for take in step.takes:
                piece = inputs.pieces[take.piece]
                if take.uris is not None:
                    piece = piece.only(take.uris, stages.engine)
                if take.back is None:
                    quarantine(stages, piece, f"{one.name}-{token}-{take.piece}")
                pieces.append(piece)
            append_step(stages, shard, step, pieces, token, todo.manifest.digest)
    if todo.uri is not None:
        _merge_runs(stages, shard, titles)
        sweep(todo, inputs, stages.store)
    return shard


def gather(
    stages: Stages, known: Sequence[Arranging], one: PassPlan, job: SliceJob, work: Store
) -> dict[int, Shard]:
    """The rows of keys that a pass asks for, arranged for this run alone."""
    shards = {}
    with stages.stage("gather rows of asked keys", one.events):
        for number in sorted(set(one.arrangements)):
            name, inputs = known[number].name, known[number].inputs
            shard = _shard(stages, f"{work.uri}/asked-{name}", inputs)
            keys = pa.schema([inputs.schema.field(key) for key in inputs.key_names])
            for step in whole(inputs)[shard.upper :]:
                pieces = [inputs.pieces[take.piece] for take in step.takes]
                for take, piece in zip(step.takes, pieces, strict=True):
                    quarantine(stages, piece, f"{name}-{take.piece}")
                token = f"asked-{step.lower}"
                append_step(stages, shard, step, pieces, token, token, AskedRows(job, keys))
            shards[number] = shard
    return shards


def append_step(
    stages: Stages,
    shard: Shard,
    step: Step,
    pieces: Sequence[Piece],
    token: str,
    mark: str,
    asked: AskedRows | None = None,
) -> None:
    """Append the rows of a step; or of them those that are `asked` for."""
    bounds = {"lower": step.lower, "upper": step.upper}
    if not pieces:
        shard.append(shard.schema.empty_table(), token=token, mark=mark, **bounds)
    elif len(pieces) == 1 and pieces[0].rows is not None:
        rows: TaskRows = replace(pieces[0].rows, times=step.times())
        rows = rows if asked is None else replace(asked, rows=rows)
        shard.append_tasks(stages.spark, rows, token=token, mark=mark, **bounds)
    else:
        frames = [p.frame(take.back) for p, take in zip(pieces, step.takes, strict=True)]
        frame = functools.reduce(lambda a, b: a.unionByName(b), frames)
        frame = frame if asked is None else asked.frame(frame)
        exchanged = any(piece.exchanged for piece in pieces)
        tasks = 2 * parallelism(stages.spark) if exchanged else None
        shard.append(frame, token=token, mark=mark, exchange=tasks, **bounds)
    raw = shard.appended.get("rows", 0)
    if asked is not None:  # of rows that Spark reads, only those that remain are counted
        footers = [piece.table.parquet for piece in pieces]
        raw = max(raw, sum(parquet.rows for parquet in footers if parquet is not None))
    stages.add("raw_rows", raw)
    stages.add("peak_memory", shard.appended.get("peak_memory", 0))


def quarantine(stages: Stages, piece: Piece, name: str) -> None:
    """Keep the rows that have no time where someone can look at them."""
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


def _shard(stages: Stages, uri: str, inputs: GroupInputs) -> Shard:
    """The shard of an arrangement, new or as it is."""
    options = stages.store.options_dict
    try:
        return Shard.open(uri, storage_options=options)
    except ShardNotFoundError:
        return Shard.create(
            uri, inputs.schema, key=inputs.key_names, order=EVENT_ORDER, storage_options=options
        )


def _merge_runs(stages: Stages, shard: Shard, titles: str) -> None:
    """Merge the runs of an arrangement once there are many, as after months of new days."""
    if shard.is_untidy(fanout=RUNS):
        with stages.stage(f"merge runs of {titles}", shard.stats().rows):
            shard.compact(fanout=RUNS, spark=stages.spark)
            shard.vacuum()  # of what is older than any reader
