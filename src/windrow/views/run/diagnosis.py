"""What failed: the operator and the row, found by running less and less of a job that has failed.

Spark says which error there was, but neither for which row nor where in the plan. So the job is
built once more, on one partition, with a stage between any two operators, and run again in parts
(see `Probe`). Of its stages, the first whose rows cannot be passed on feeds the operator that
fails. Of those rows, halves are tried until one is left. That takes about as many runs as the
number of rows has bits; nothing is written, and nothing of it happens unless a run has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from windrow.spark.errors import known_error
from windrow.spark.sql_errors import quiet
from windrow.storage.names import new_id
from windrow.views.run.frames import Frames
from windrow.views.run.task import Probe, Run, reported_of

MOST_ROWS = 1_000_000  # of changes that are looked through


@dataclass(frozen=True)
class Culprit:
    """An operator that fails, and the row that it fails for, if it is one row."""

    operator: str
    row: str | None

    def __str__(self) -> str:
        where = f"It fails in the operator {self.operator}"
        return where if self.row is None else f"{where}, for the row {self.row}"


@dataclass(frozen=True)
class Diagnosis:
    """Runs parts of a job. `execute` runs all of it, on the changes of `run`."""

    frames: Frames
    run: Run
    execute: Callable[[Run], None]

    def culprit(self) -> Culprit | None:
        """What fails; None if nothing does any more, or something else."""
        stage = len(self.frames.operators) - 1
        if not self._fails(Probe(stage)):
            return None
        first = 0
        while first < stage:
            middle = (first + stage) // 2
            if self._fails(Probe(middle)):
                stage = middle
            else:
                first = middle + 1
        operator = self.frames.evaluated.get(stage)
        return None if operator is None else Culprit(operator.title, self._row(stage))

    def _row(self, stage: int) -> str | None:
        """The only row of a stage that suffices to fail; None if it takes several."""
        start, end = 0, self._rows(stage)
        while end - start > 1:
            middle = (start + end) // 2
            if self._fails(Probe(stage, start, middle)):
                end = middle
            else:
                start = middle
        run = self._probe(Probe(stage, start, start + 1))
        if not self._run_fails(run):
            return None
        about = reported_of(self.frames.job, run.id, stage) or {}
        names, values = self.frames.names.get(stage, []), about.get("row") or []
        shown = [f"{name}: {value}" for name, value in zip(names, values, strict=False) if name]
        return f"({', '.join(shown)})" if shown else None

    def _rows(self, stage: int) -> int:
        """How many rows a stage passes on."""
        run = self._probe(Probe(stage))
        self._run_fails(run)
        about = reported_of(self.frames.job, run.id, stage) or {"counts": {"given_out": 0}}
        return int(about["counts"]["given_out"])

    def _fails(self, probe: Probe) -> bool:
        return self._run_fails(self._probe(probe))

    def _probe(self, probe: Probe) -> Run:
        return replace(self.run, id=new_id(), written=[], probe=probe)

    def _run_fails(self, run: Run) -> bool:
        """Whether a run fails for what the rows are; what else goes wrong ends the search."""
        try:
            with quiet():
                self.execute(run)
        except Exception as error:
            if known_error(error) is None:
                raise
            return True
        return False
