"""The stage that makes tiles: of new batches of an arrangement, for keys that are large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windrow.errors import ShardNotFoundError
from windrow.features import limits
from windrow.features.plan.backfill import PassPlan
from windrow.features.run.stages import Stages
from windrow.features.strategies.boards import Tiled
from windrow.features.strategies.merge import SliceJob
from windrow.features.strategies.sorted_rows import row_scan
from windrow.features.strategies.tiled import TiledJob, hot_slices, plan_tiles
from windrow.features.strategies.tiles import TILE_ORDER, TileRows, Tiling, tile_name
from windrow.shard.plan import even_cuts, slices_between
from windrow.shard.shard import Shard
from windrow.spark.session import parallelism
from windrow.storage.names import digest
from windrow.storage.store import Store


def large_keys(one: PassPlan, shards: Mapping[int, Shard]) -> dict[int, int]:
    """Prefixes of keys with more events than a slice has rows, and how many."""
    found: dict[int, int] = {}
    for number in one.arrangements:
        for prefix, rows in shards[number].hot_prefixes().items():
            if rows > limits.SLICE_ROWS:
                found[prefix] = max(rows, found.get(prefix, 0))
    return found


def make_tiles(
    stages: Stages, one: PassPlan, job: SliceJob, shards: Mapping[int, Shard], work: Store
) -> TiledJob:
    """The pass by tiles; tiles that are not there yet are made."""
    tiled, parts = [], []
    hot = large_keys(one, shards)
    with stages.stage("make tiles", sum(hot.values()) or job.rows):
        for arranged, number in zip(job.arranged, one.arrangements, strict=True):
            tilings = [Tiling(a, arranged) for a in arranged.group.group.aggregations]
            made = [_tiles(stages, tiling, shards[number], work, hot) for tiling in tilings]
            reads = [shard.snapshot(consolidate="none") for shard in made]
            scans = tuple(row_scan(read.scan) for read in reads)
            tiled.append(Tiled(arranged, tuple(tilings), scans))
            parts.append([read.parts for read in reads])
    return plan_tiles(job, tiled, parts, hot)


def _tiles(
    stages: Stages, tiling: Tiling, arrangement: Shard, work: Store, hot: Mapping[int, int]
) -> Shard:
    """The tiles of an aggregation, with every batch of its arrangement taken in."""
    kept = arrangement.uri.startswith(f"{stages.store.uri}/arrangements/")
    place = "/".join(arrangement.uri.split("/")[-2:])
    root = stages.store.uri if kept else work.uri
    # Tiles do not say which file a row came from: without some files, or of other keys, they are
    # others.
    chosen = (tiling.arranged.scan.times.without, sorted(hot))
    name = digest(chosen)
    uri = f"{root}/tiles/{place}/{tile_name(tiling.aggregation)}-{name}"
    options = stages.store.options_dict
    try:
        shard = Shard.open(uri, storage_options=options)
    except ShardNotFoundError:
        keys = list(tiling.arranged.scan.spec.key)
        shard = Shard.create(
            uri, tiling.schema, key=keys, order=TILE_ORDER, storage_options=options
        )
    lower, upper = shard.upper, arrangement.upper
    if lower < upper:
        scan, tasks = tiling.arranged.scan, parallelism(stages.spark)
        times = replace(scan.times, start=lower, end=upper - 1)
        new = [part for part in tiling.arranged.parts if times.overlaps(part)]
        wanted = max(tasks, -(-sum(part.rows for part in new) // limits.SLICE_ROWS))
        slices = slices_between(new, even_cuts(new, wanted, scan.spec))
        if hot:
            slices = hot_slices(new, hot, tasks)
        made = TileRows.make(tiling, lower, upper, slices)
        shard.append_tasks(stages.spark, made, lower=lower, upper=upper, token=f"tiles-{upper}")
    return shard
