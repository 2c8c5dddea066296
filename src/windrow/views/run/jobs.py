"""Jobs: a view's plan as a frame that can be run, again and again where it has no exchange."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection as Ids
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import DataError, StorageError, WindrowError
from windrow.spark.catalyst import Catalyst
from windrow.spark.errors import known_errors
from windrow.spark.plans import active
from windrow.storage.leases import Lease, claim, drop_leases, found_leases
from windrow.storage.names import new_id
from windrow.storage.store import Store
from windrow.views.history.collections import Collection
from windrow.views.history.sweep import SWEEP_HOURS
from windrow.views.plan.nodes import Node, ViewPlan
from windrow.views.run.diagnosis import MOST_ROWS, Culprit, Diagnosis
from windrow.views.run.frames import Frames
from windrow.views.run.task import (
    PROPERTY,
    Job,
    Reported,
    Run,
    collect_reports,
    reported_error,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


CLAIMS = "claims"  # beside those of backfills: see `windrow.storage.work`
_TICKS = "ticks-"  # how the names of these folders begin


class JobFolders:
    """Folders for the jobs of this process, beneath `tmp/`; removed when nobody uses them.

    A process that is killed leaves its folder, and a claim that ended with it. Nobody resumes in
    it, so the next processes remove it.
    """

    def __init__(self, root: Store) -> None:
        self._root = root
        self._folder: Store | None = None
        self._lease: Lease | None = None
        self._count = 0

    def new(self) -> Store:
        """A folder for one job."""
        if self._folder is None:
            with suppress(StorageError):  # what others left is not this tick's concern
                self.sweep(SWEEP_HOURS)
            name = f"{_TICKS}{new_id()}"
            self._lease = claim(self._root.beneath(CLAIMS), name)
            self._folder = self._root.beneath(f"tmp/{name}")
        self._count += 1
        return self._folder.beneath(str(self._count))

    def sweep(self, hours: float) -> list[str]:
        """Remove the folders of processes that ended so many hours ago; their names."""
        owners, removed = self._root.beneath(CLAIMS), []
        for found in found_leases(owners):
            name = str(found.about.get("claim", ""))
            old = time.time() - found.at >= hours * 3600
            if name.startswith(_TICKS) and old and not found.is_live():
                self._root.beneath(f"tmp/{name}").remove()
                drop_leases(owners, [found])  # last: without it, nobody would find the folder
                removed.append(f"tmp/{name}")
        return removed

    def close(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            if self._lease is not None:
                self._lease.release()
            self._folder, self._lease = None, None


@dataclass
class ViewJob:
    """A view's plan, bound to collections, and the frame that was prepared for it."""

    name: str
    plan: ViewPlan
    places: Mapping[str, str]  # names of arrangements, and of the output, to collections
    catalyst: Catalyst
    folders: JobFolders

    stages: tuple[Node | None, ...] = ()  # of the frame that ran last: whose each is
    _prepared: tuple[Frames, DataFrame] | None = None

    @property
    def collections(self) -> set[str]:
        """All collections that a run reads or writes."""
        return {*self.places.values(), *(one.collection for one in self.plan.inputs)}

    def run(
        self,
        collections: Mapping[str, Collection],
        written: Ids[str],
        *,
        lower: int,
        time: int,
        fill: bool,
        partitions: int | None,
        arranges: Mapping[str, Sequence[str]] | None = None,
    ) -> Reported:
        """Run the job on the changes of its inputs in `[lower, time]`; what it has written.

        `written` are the collections that are this job's to write; `arranges` the relations whose
        rows by key are, too. A job on one partition that is prepared can be run by any thread.
        """
        arranges = arranges or {}
        ids = {*self.collections, *(id for several in arranges.values() for id in several)}
        found = {id: collections[id].to_json() for id in ids}
        run = Run(new_id(), time, lower, fill, sorted(written), found, arranges=arranges)
        if partitions is None:
            frames, frame = self.prepare()
            self.stages = tuple(frames.operators)
            return self._run(frames, frame, run)
        frames = self._frames(partitions, fill)
        try:
            frame = self._frame(frames)
            self.stages = tuple(frames.operators)
            reported = self._run(frames, frame, run)
        finally:
            for one in frames.persisted:
                one.unpersist()
        frames.job.folder.remove()
        return reported

    def prepare(self) -> tuple[Frames, DataFrame]:
        """The job on one partition, analysed, planned and compiled once."""
        if self._prepared is None:
            frames = self._frames(None)
            frame = self._frame(frames)
            if self.catalyst.has_exchange(frame):
                raise AssertionError(f"view {self.name}: a job on one partition exchanges rows")
            self._prepared = frames, frame
        return self._prepared

    def _frames(self, partitions: int | None, fill: bool = False, tapped: bool = False) -> Frames:
        job = Job.at(self.folders.new(), self.catalyst.spark.sparkContext)
        if partitions is not None:
            self.catalyst.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        return Frames(self.catalyst, job, self.places, partitions, fill, tapped)

    def _frame(self, frames: Frames) -> DataFrame:
        # What types are allowed is asked of the active session, whenever a plan is put together.
        with active(self.catalyst.spark):
            return frames.view(self.plan)

    def _run(self, frames: Frames, frame: DataFrame, run: Run) -> Reported:
        try:
            return executed(frames.job, frame, run)
        except Exception as error:
            raise self._explained(frames, run, error) from error

    def _explained(self, frames: Frames, run: Run, error: Exception) -> Exception:
        """The error of a run, with the view, the operator and the row; what is not known, as is."""
        reported = reported_error(frames.job, run.id)
        if reported is not None:
            stage, ours = reported
            if not _is_plain(ours):
                return ours
            operator = frames.operators[stage]
            where = "" if operator is None else f", operator {operator.title}"
            # What Spark has a name for is about rows; the rest is about state.
            repair = f". {_REPAIR}" if str(ours).startswith("[") else ""
            return type(ours)(f"view {self.name}{where}: {ours}{repair}")
        if isinstance(error, DataError):
            culprit = self._culprit(run)
            where = "" if culprit is None else f" {culprit}."
            return DataError(f"view {self.name}: {error}{where} {_REPAIR}")
        return error

    def _culprit(self, run: Run) -> Culprit | None:
        """The operator and the row that a run failed for, as far as they can be found."""
        changes = [
            Collection.from_json(run.collections[one.collection]) for one in self.plan.inputs
        ]
        if sum(one.updates_since(run.lower) for one in changes) > MOST_ROWS:
            return None
        try:
            frames = self._frames(None, tapped=True)
            try:
                frame = self._frame(frames)
                execute = functools.partial(_execute, frames.job, frame)
                return Diagnosis(frames, run, execute).culprit()
            finally:
                frames.job.folder.remove()
        except Exception:  # whatever it is, it must not hide what it was to explain
            return None


_REPAIR = "Nothing was committed; correct or remove the row, and tick again"


def _execute(job: Job, frame: DataFrame, run: Run) -> None:
    """Run a job's frame once; what its stages did, they have reported."""
    job.begin(run)
    try:
        with _property_of_jobs(frame, PROPERTY, run.id):
            Catalyst.execute(frame)
    finally:
        job.end(run)


def executed(job: Job, frame: DataFrame, run: Run) -> Reported:
    """Execute a frame as a run of a job; what its stages have written."""
    with known_errors():
        _execute(job, frame, run)
    return collect_reports(job, run.id)


@contextmanager
def _property_of_jobs(frame: DataFrame, name: str, value: str) -> Iterator[None]:
    """A block whose Spark jobs carry a property, which their tasks can read."""
    context = frame.sparkSession.sparkContext
    before = context.getLocalProperty(name)
    context.setLocalProperty(name, value)
    try:
        yield
    finally:
        context.setLocalProperty(name, before)  # type: ignore[arg-type]  # None removes it


def _is_plain(error: WindrowError) -> bool:
    return len(error.args) == 1 and not vars(error)
