"""What the Python stages of a tick share: what the run is about, state to look up, what they wrote.

A job is prepared once and run again at each tick, so its stages cannot carry what changes from
run to run. They find it in a file of the job's folder:

    JOB/run-RUN.json                 a run: its time, the collections as they were before it
    JOB/error-RUN.json               the error that a stage of it has raised
    JOB/reports/RUN-STAGE-PARTITION-ATTEMPT.json     what one stage of one task has written

Which run a task belongs to is a property of the Spark job that it is part of. A task whose run has
failed may be at work for a while when the next run has begun; it must not take that for its own.

A stage of a job reads state as it was before the tick, and only adds the changes that flow through
it. So stages do not depend on what others of the same tick have written, and a task that is run
again does the same again.

A stage cannot tell the end of its input from that of the stage before it: where one dies, those
that follow see an end too soon, and report what they made of it. So reports count only if Spark
says that their task has succeeded, by an accumulator.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from windrow import errors
from windrow.errors import StorageError, WindrowError
from windrow.spark.tasks import Written, WrittenFile
from windrow.storage.store import Store
from windrow.views.history.collections import Collection
from windrow.views.plan.nodes import Results
from windrow.views.run.results import results_of
from windrow.views.run.weighted import Weighted

if TYPE_CHECKING:
    from pyspark import SparkContext

PROPERTY = "windrow.run"  # of a Spark job: the id of the run
REPORTS = "reports"
EVERYTHING = "_all"  # the key column of what has no key


@dataclass(frozen=True)
class Arranged:
    """State of an operator: a collection by key.

    Several operators may share a collection. All of them see the same changes of it, so it is
    enough that one writes them: of a job, the stage that is `first` to have it, and of several
    jobs the one whose run says so. The collection may have more columns than `schema`.
    """

    collection: str
    key: tuple[str, ...]
    schema: pa.Schema
    first: bool
    order: tuple[str, ...] = ()
    results: Results | None = None  # rows are totals; `schema` is that of what follows from them

    @property
    def has_key(self) -> bool:
        return self.key != (EVERYTHING,)


@dataclass(frozen=True)
class Probe:
    """How much of a job is run to find out what fails (see `windrow.views.run.diagnosis`).

    Stages after `stage` read what comes and pass nothing on. That one passes on some of its rows,
    those from `start` on and before `end`, and shows the first of them.
    """

    stage: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Run:
    """One run of a job. `fill`: there was nothing before, whatever shared state says."""

    id: str
    time: int  # of all that is written
    lower: int  # changes of inputs are those with times in [lower, time]
    fill: bool
    written: list[str]  # collections that this job writes; those of others it only reads
    collections: Mapping[str, Mapping[str, Any]] = field(repr=False)
    probe: Probe | None = None
    # Relations whose rows by key this job keeps: their collections, to those of what is kept.
    arranges: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(data: bytes) -> Run:
        found = json.loads(data)
        probe = found.pop("probe")
        return Run(**found, probe=None if probe is None else Probe(**probe))


Report = tuple[str, int, int, int]  # run, stage, partition, attempt


class _Lists(AccumulatorParam[list[Report]]):
    """Adds up lists."""

    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
        return value1 + value2


@dataclass(frozen=True)
class Job:
    """The folder of a prepared job. Picklable."""

    folder: Store
    succeeded: Accumulator[list[Report]] = field(compare=False)

    @staticmethod
    def at(folder: Store, context: SparkContext) -> Job:
        return Job(folder, context.accumulator([], _Lists()))

    def begin(self, run: Run) -> None:
        """Write down what a run is about, for its tasks."""
        self.folder.put(_run_name(run.id), run.to_json())

    def end(self, run: Run) -> None:
        self.folder.discard([_run_name(run.id)])

    def load(self) -> Run:
        """The run that this task belongs to."""
        return _loaded(self.folder, _run_name(_run_of_task()))

    def failed(self, run: str, stage: int, error: WindrowError) -> None:
        """Keep an error of ours for the driver: Spark shows only its text."""
        kept = {"stage": stage, "error": errors.to_json(error)}
        self.folder.put(_error_name(run), json.dumps(kept).encode())


@functools.lru_cache(maxsize=4)
def _loaded(folder: Store, name: str) -> Run:
    """Several stages of a run may be in one process."""
    data = folder.get(name)
    if data is None:
        raise StorageError(f"{folder.uri}/{name} is gone: its run has ended")
    return Run.from_json(data)


def _run_name(id: str) -> str:
    return f"run-{id}.json"


def _error_name(id: str) -> str:
    return f"error-{id}.json"


def _run_of_task() -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(PROPERTY)
    if found is None:
        raise RuntimeError(f"a stage of a view outside a job with the property {PROPERTY}")
    return str(found)


class Task:
    """One stage of one task, while it runs."""

    def __init__(self, job: Job, stage: int) -> None:
        self._job, self._stage = job, stage
        self._started = time.perf_counter()
        self.run = job.load()
        self._written: dict[str, list[Written]] = {}
        self._collections: dict[str, Collection] = {}
        self.counts: dict[str, int] = {}

    def collection(self, id: str) -> Collection:
        if id not in self._collections:
            found = Collection.from_json(self.run.collections[id], self._job.folder.options)
            self._collections[id] = found
        return self._collections[id]

    def old(self, arranged: Arranged, keys: pa.Table | None) -> Weighted:
        """The rows of `keys` (None: all rows) as they were before the tick."""
        empty = Weighted.empty(arranged.schema)
        if self.run.fill or (keys is not None and not keys.num_rows):
            return empty
        collection = self.collection(arranged.collection)
        if not collection.parts:
            return empty
        if not arranged.has_key:
            keys = None
        elif keys is not None:
            keys = keys.select(list(collection.spec.key))
        columns = [name for name in arranged.schema.names if name in collection.spec.schema.names]
        if arranged.results is not None:
            columns = list(collection.spec.schema.names)
        read = collection.snapshot(self.run.lower - 1, keys=keys, columns=columns)
        found = Weighted.of(read.to_table())
        self.counts["looked_up"] = self.counts.get("looked_up", 0) + found.size
        if arranged.results is not None:
            return results_of(arranged.results, arranged.schema, found)
        if len(columns) < len(arranged.schema):  # what has no key is a relation's own rows
            constant = pa.array(np.zeros(found.size, np.int8))
            return Weighted(found.rows.append_column(EVERYTHING, constant), found.weights)
        return found

    def write(self, arranged: Arranged, delta: Weighted) -> None:
        id = arranged.collection
        if arranged.first and id in self.run.written:
            self.append(self.collection(id), delta)

    def append(self, collection: Collection, delta: Weighted) -> None:
        """Write a change of a collection, whose columns it has."""
        if delta.size:
            writer = collection.writer(self.run.time)
            batches = delta.updates().to_batches(max_chunksize=1 << 20)
            self._written.setdefault(collection.id, []).append(writer.write(batches))

    def report(self, row: list[str] | None = None, **counts: int) -> None:
        """Tell the driver what this stage wrote. Before anything is passed on: see `Task`.

        `row` holds the values, as text, of a row that a probe asks for.
        """
        parts = {
            id: [asdict(part) for one in several for part in one.parts]
            for id, several in self._written.items()
        }
        partition, attempt = _context()
        name = _report_name(self.run.id, self._stage, partition, attempt)
        seconds = time.perf_counter() - self._started
        about = {"parts": parts, "counts": {**self.counts, **counts}, "seconds": seconds}
        if row is not None:
            about["row"] = row
        self._job.folder.put(f"{REPORTS}/{name}", json.dumps(about).encode())
        self._job.succeeded.add([(self.run.id, self._stage, partition, attempt)])


def _context() -> tuple[int, int]:
    from pyspark import TaskContext

    found = TaskContext.get()
    return (0, 0) if found is None else (found.partitionId(), found.attemptNumber())


@dataclass
class Reported:
    """What all stages of a run have written and counted."""

    parts: dict[str, list[WrittenFile]] = field(default_factory=dict)
    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


def _report_name(run: str, stage: int, partition: int, attempt: int) -> str:
    return f"{run}-{stage}-{partition}-{attempt}.json"


def collect_reports(job: Job, run: str) -> Reported:
    """The reports of a run: one of each stage and partition, of an attempt that succeeded.

    Of several that did, any will do: they have written the same rows.
    """
    succeeded = [one for one in job.succeeded.value if one[0] == run]
    job.succeeded.value = []
    folder = job.folder.beneath(REPORTS)
    chosen: dict[tuple[int, int], dict[str, Any]] = {}
    for _, stage, partition, attempt in succeeded:
        if (stage, partition) not in chosen:
            data = folder.get(_report_name(run, stage, partition, attempt))
            if data is None:
                raise StorageError(f"{folder.uri}: a report of run {run} is gone; tick again")
            chosen[stage, partition] = json.loads(data)
    out = Reported()
    for (stage, _), about in sorted(chosen.items()):
        for id, parts in about["parts"].items():
            out.parts.setdefault(id, []).extend(WrittenFile(**part) for part in parts)
        totals = out.counts.setdefault(stage, {})
        for what, count in about["counts"].items():
            totals[what] = totals.get(what, 0) + count
        out.seconds[stage] = out.seconds.get(stage, 0.0) + about["seconds"]
    folder.discard(folder.names())
    return out


def reported_error(job: Job, run: str) -> tuple[int, WindrowError] | None:
    """The stage of a run that has raised an error of ours, and that error."""
    data = job.folder.get(_error_name(run))
    if data is None:
        return None
    job.folder.discard([_error_name(run)])
    kept = json.loads(data)
    return int(kept["stage"]), errors.from_json(kept["error"])


def reported_of(job: Job, run: str, stage: int) -> Mapping[str, Any] | None:
    """What a stage of a run on one partition has reported, also if the run has failed."""
    folder = job.folder.beneath(REPORTS)
    for name in folder.names():
        if name.startswith(f"{run}-{stage}-"):
            data = folder.get(name)
            return None if data is None else json.loads(data)
    return None
