"""The stage that builds tiles: of new batches of an arrangement, for keys that are large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from windrow.arrangements.rows import row_scan
from windrow.errors import ShardNotFoundError
from windrow.features import limits
from windrow.features.plan.arrangement import PlannedArrangement
from windrow.features.plan.passes import PassPlan
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.tiles.job import TiledJob, hot_slices, plan_tiles
from windrow.features.strategies.tiles.tiling import TILE_ORDER, TileRows, Tiling
from windrow.features.strategies.tiles.windows import Tiled
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.shard import Shard
from windrow.spark.stages import Stages
from windrow.storage.names import digest
from windrow.storage.store import Store


def build_tiles(
    stages: Stages,
    known: Sequence[PlannedArrangement],
    one: PassPlan,
    job: SliceJob,
    shards: Mapping[int, Shard],
    work: Store,
) -> TiledJob:
    """The pass by tiles; missing tiles are built."""
    tiled = []
    hot = dict(one.large)
    with stages.stage("build tiles", sum(hot.values()) or job.rows):
        for events, number in zip(job.events, one.arrangements, strict=True):
            tilings = [Tiling(a, events) for a in events.group.group.aggregations]
            todo = known[number].todo
            made = []
            for tiling in tilings:
                # Tiles do not say which file a row is from, nor, once times were advanced, when:
                # of other files or keys, or after a compaction, they are others. So they are after
                # a retraction that they cannot take.
                kept = todo.manifest.retractions if not tiling.takes_retractions else None
                name = digest(todo.chosen, kept, shards[number].since, sorted(hot))
                made.append(_tiles(stages, tiling, shards[number], work, hot, name))
            reads = [shard.snapshot(consolidate="none") for shard in made]
            scans = tuple(row_scan(read.scan) for read in reads)
            parts = tuple(tuple(read.parts) for read in reads)
            tiled.append(Tiled(events, tuple(tilings), scans, parts))
    return plan_tiles(job, tiled, hot)


def _tiles(
    stages: Stages,
    tiling: Tiling,
    arrangement: Shard,
    work: Store,
    hot: Mapping[int, int],
    name: str,
) -> Shard:
    """The tiles of an aggregation, of every batch of its arrangement."""
    kept = arrangement.uri.startswith(f"{stages.store.uri}/arrangements/")
    place = "/".join(arrangement.uri.split("/")[-2:])
    root = stages.store.uri if kept else work.uri
    uri = f"{root}/tiles/{place}/{tiling.name}-{name}"
    options = stages.store.options_dict
    try:
        shard = Shard.open(uri, storage_options=options)
    except ShardNotFoundError:
        keys = tiling.events.layout.keys
        shard = Shard.create(
            uri, tiling.schema, key=keys, order=TILE_ORDER, storage_options=options
        )
    lower, upper = shard.upper, arrangement.upper
    if lower < upper:
        scan, tasks = tiling.events.scan, stages.engine.tasks
        times = replace(scan.times, start=lower)
        new = [part for part in tiling.events.parts if times.overlaps(part)]
        wanted = max(tasks, -(-sum(part.rows for part in new) // limits.SLICE_ROWS))
        slices = slices_between(new, even_cuts(new, wanted, scan.spec))
        if hot:
            slices = hot_slices(new, hot, tasks)
        made = TileRows.make(tiling, lower, slices)
        shard.append_tasks(stages.given, made, lower=lower, upper=upper, token=f"tiles-{upper}")
    return shard
