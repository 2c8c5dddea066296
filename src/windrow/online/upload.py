"""Uploads: the records of all keys of a group, from its arrangement, as a new generation.

Tasks read neighbouring slices of the arrangement, fold the rows of their keys into records, and
load these into the store. Nobody reads them before all are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from windrow.arrangements.catalogue import note_use
from windrow.arrangements.find import as_it_is, find
from windrow.arrangements.rows import bounds_of
from windrow.errors import DefinitionError, OptionError
from windrow.features.definitions import GroupBy, JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.features.plan.arrangement import PlannedArrangement
from windrow.features.run.ingest import hold_sources, ingest
from windrow.features.strategies.group_events import GroupEvents
from windrow.features.strategies.merge import even_slices
from windrow.online.folding import Batch, Folding
from windrow.online.generations import Generation, change_note, new_generation
from windrow.online.keys import check_key_type, key_bytes
from windrow.online.live_rows import columns_of
from windrow.online.served import TILES, ServedGroup, travelling
from windrow.online.stores.store import RecordStore
from windrow.rows.ordering import HIGHEST, LOWEST
from windrow.shard.scan import Bound
from windrow.spark.stages import Stages
from windrow.spark.tasks import Written, run_numbered
from windrow.storage.work import work_folder
from windrow.time import now_millis
from windrow.updates import DIFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH = 400_000  # rows that are folded at a time


@dataclass(frozen=True)
class Uploaded:
    """What an upload did."""

    group: str
    generation: int
    keys: int
    rows: int
    bytes: int
    sealed: int


def serve_group(group: GroupBy, inputs: GroupInputs) -> ServedGroup:
    """The plan of a group; a DefinitionError if it cannot be served."""
    what = f"GroupBy {group.name!r}"
    if not group.online:
        raise DefinitionError(f"{what}: online=False; set online=True to serve it")
    for name, type_ in zip(group.keys, inputs.layout.key_types, strict=True):
        check_key_type(type_, f"{what}: key {name!r}")
    return ServedGroup(group, inputs.layout, group.staleness, group.stale == "refuse")


@dataclass(frozen=True)
class UploadJob:
    """All records of a generation, cut into slices. Picklable: tasks carry it."""

    events: GroupEvents
    served: ServedGroup
    records: RecordStore
    generation: Generation
    cuts: tuple[Bound, ...]

    @property
    def slices(self) -> int:
        return len(self.cuts) + 1

    def write(self, number: int) -> Written:
        """Load the records of one slice: some are stored while the next ones are made."""
        rows = keys = size = 0
        with ThreadPoolExecutor(1) as storing:
            before: Future[None] | None = None
            for table in self._tables(number):
                found = self._records(table)
                if before is not None:
                    before.result()
                before = storing.submit(self.records.load, found)
                rows += table.num_rows
                keys += len(found)
                size += sum(len(record) for _, record in found)
            if before is not None:
                before.result()
        return Written([], 0, {"rows": rows, "keys": keys, "bytes": size})

    def _records(self, table: pa.Table) -> list[tuple[bytes, bytes]]:
        """The records of the keys of some rows."""
        batch, generation = Batch.of(self.served, table), self.generation
        folding = Folding(self.served, batch, generation.sealed, generation.positions)
        made = folding([None] * batch.keys.num_rows)
        names = key_bytes(generation.number, batch.keys)
        return [(k, r) for k, r in zip(names, made, strict=True) if r is not None]

    def _tables(self, number: int) -> Iterator[pa.Table]:
        """The rows of a slice, those of some neighbouring keys at a time."""
        events, layout = self.events, self.served.layout
        start, end = bounds_of(self.cuts, number, number)
        rows = events.sorted_rows((start, end))
        low, high = LOWEST if start is None else start[0], HIGHEST if end is None else end[0]
        steps = max(1, events.rows // self.slices // _BATCH)
        inner = sorted({low + (high - low) * i // steps for i in range(1, steps)} - {low})
        names = layout.schema.names
        if self.served.form != TILES:
            names = [*layout.keys, *columns_of(layout)]
        wanted = [*dict.fromkeys([*names, DIFF])]
        bounds: list[Bound | None] = [*((prefix, LOWEST) for prefix in inner), end]
        for bound in bounds:
            table = events.in_layout(rows.below(bound))
            if table.num_rows:
                yield table.select(wanted).combine_chunks()


def upload_group(
    stages: Stages, group: GroupBy, records: RecordStore, as_of: int | None
) -> Uploaded:
    """Write a new generation of a group's records; it is served once it is as far on as the old."""
    store, engine = stages.store, stages.engine
    check_reachable(stages.given, records)
    started = now_millis()
    inputs = GroupInputs.bind(group, engine, store.options_dict)
    served = serve_group(group, inputs)
    todo = find(inputs.content, store) if inputs.shard is None else None
    if todo is None:
        assert inputs.shard is not None
        todo = as_it_is(inputs.shard, "a shard by the same key, read as it is")
    planned = PlannedArrangement(inputs, todo)
    reader = f"upload of {group.name}"
    with work_folder(store, None) as work, ExitStack() as holds:
        hold_sources([planned], reader, holds)
        shard, planned = ingest(stages, planned, work, reader, holds)
        if inputs.shard is None and planned.todo.uri is not None:
            note_use(inputs.content, store, reader)
        todo = planned.todo
        retracted = todo.manifest.retractions > 0
        events = GroupEvents.make(JoinedGroup(group), inputs, shard, None, todo.chosen, retracted)
        travelled = travelling(served)
        generation = Generation(
            new_generation(records),
            travelled,
            started if as_of is None else as_of,
            _positions(inputs, planned),
            (started,) * len(group.sources),
        )
        change_note(records, group.name, lambda note: note.stages(generation))
        cuts = even_slices(events.parts, events.rows, engine.tasks, ())
        job = UploadJob(events, travelled, records, generation, tuple(cuts))
        with stages.stage(f"upload {group.name}", events.rows):
            written = run_numbered(stages.given, job.slices, work, job.write)
    change_note(
        records,
        group.name,
        lambda note: note.changed(
            generation.number, lambda one: replace(one, loaded=True)
        ).promoted(),
    )
    counted = written.counters
    return Uploaded(
        group.name,
        generation.number,
        counted.get("keys", 0),
        counted.get("rows", 0),
        counted.get("bytes", 0),
        generation.sealed,
    )


def _positions(inputs: GroupInputs, planned: PlannedArrangement) -> tuple[int, ...]:
    """For each source the time up to which its shard was read; 0 for tables."""
    positions = np.zeros(len(inputs.group.sources), np.int64)
    names = [source.name for source in inputs.group.sources]
    for number, upper in planned.todo.manifest.shards.items():
        positions[names.index(inputs.content.pieces[number].source.name)] = upper
    return tuple(positions.tolist())


def check_reachable(spark: SparkSession, records: RecordStore) -> None:
    """Refuse a folder of this machine as a store for tasks that run on others."""
    if not records.is_local:
        return
    try:
        master = str(spark.sparkContext.master)
    except Exception:  # Spark Connect has no context
        master = "remote"
    if not master.startswith("local"):
        raise OptionError(
            f"the store {records.address} is a folder of this machine, but Spark's tasks run on "
            f"others ({master}); use Redis, or a local Spark session"
        )
