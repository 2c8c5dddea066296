"""Progress of long work: stages with a bar each, on a terminal; silence elsewhere.

Work reports stages and says how many rows one is about; while Spark runs a stage's tasks, its
status tells how far they are. A session that cannot tell (Spark Connect) shows a moving bar.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from windrow.storage.underway import Note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.2
_NOTE_SECONDS = 1.0  # between two notes of how far a stage is


class Progress(Protocol):
    """An observer of how far work is."""

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        """A stage of the work, about `rows` rows if that is known."""
        ...


class Silent:
    """Progress that nobody watches."""

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        yield


class Bars:
    """A bar per stage, on standard error."""

    def __init__(self, spark: SparkSession) -> None:
        from rich.console import Console

        self._spark = spark
        self._console = Console(stderr=True)

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as bars:
            task = bars.add_task(title, total=None, done="")
            done = threading.Event()
            watcher = threading.Thread(
                target=self._watch, args=(bars, task, rows, done), daemon=True
            )
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()
            shown = f"{rows:,} rows" if rows is not None else ""
            bars.update(task, total=1, completed=1, done=shown)

    def _watch(self, bars: Any, task: Any, rows: int | None, done: threading.Event) -> None:
        while not done.wait(_POLL_SECONDS):
            found = running_tasks(self._spark)
            if found is None:
                continue
            finished, total = found
            shown = f"{finished} of {total} tasks"
            if rows is not None and total:
                shown += f", {rows * finished // total:,} of {rows:,} rows"
            bars.update(task, total=max(total, 1), completed=finished, done=shown)


class Noting:
    """Progress that is noted for other processes, too; `shown` is what this one's user sees."""

    def __init__(self, shown: Progress, note: Note, spark: SparkSession) -> None:
        self._shown, self._note, self._spark = shown, note, spark

    @contextmanager
    def stage(self, title: str, rows: int | None = None) -> Iterator[None]:
        self._note.stage(title, rows)
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), daemon=True)
        watcher.start()
        try:
            with self._shown.stage(title, rows):
                yield
        finally:
            done.set()
            watcher.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(_NOTE_SECONDS):
            found = running_tasks(self._spark)
            if found is not None:
                self._note.done(*found)


def running_tasks(spark: SparkSession) -> tuple[int, int] | None:
    """Finished and all tasks of the stages that run now; None if nobody can tell."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # Spark Connect has no context; what it raises differs by version
        return None
    finished = total = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            finished += info.numCompletedTasks
            total += info.numTasks
    return (finished, total) if total else None


def progress_for(spark: SparkSession, wanted: bool | None) -> Progress:
    """Bars if requested; by default, if standard error is a terminal."""
    shown = sys.stderr.isatty() if wanted is None else wanted
    return Bars(spark) if shown else Silent()
