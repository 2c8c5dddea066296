"""The engine of views: creates them, and brings them up to date, all to one time.

A tick takes the changes of all tables since the last one. Views are computed in the order of their
dependencies, each by one job that reads state as it was and writes parts that nobody sees yet; a
view over another reads what that one has just written. One commit then makes all of it visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from windrow.errors import RelationExistsError, WindrowError
from windrow.spark.progress import Progress
from windrow.spark.session import Engine
from windrow.storage.store import Store
from windrow.views.engine.defining import Definer, Wanted
from windrow.views.engine.definition import ViewDefinition
from windrow.views.engine.explaining import Explaining
from windrow.views.engine.planning import Planning
from windrow.views.engine.tick_failures import note_failure
from windrow.views.engine.ticker import Ticker, TickSummary
from windrow.views.history.commits import DEFINE, Commit
from windrow.views.history.history import History
from windrow.views.history.sweep import SWEEP_HOURS
from windrow.views.relations.relations import Relations
from windrow.views.run.jobs import JobFolders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

UPKEEP_TICKS = 64  # of one process, from one upkeep of the collections to the next


class ViewEngine:
    """Creates, maintains and drops the views of a project; `explaining` explains them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        history: History,
        relations: Relations,
        progress: Progress | None = None,
    ) -> None:
        self._history, self._relations, self._store = history, relations, store
        self._folders = JobFolders(store)
        self.planning = Planning(engine, history, relations, self._folders)
        self._ticker = Ticker(engine, history, self.planning)
        self._definer = Definer(
            history, relations, self.planning, self._ticker, self._folders, progress
        )
        self.explaining = Explaining(history, relations, self.planning)
        self._swept = False

    def create(
        self,
        name: str,
        frame: DataFrame,
        *,
        text: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
        comment: str | None = None,
    ) -> None:
        """Create a view of `frame`, a query over leaves, and fill it from what is there.

        With `replace`, in place of one that there may be, which stays if anything fails.
        """
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.get(name)
            if found is not None:
                if text is None and found.kind == "view" and found.definition.get("sql") is None:
                    self.planning.attach(found.name, frame)
                    return
                if if_not_exists and found.kind == "view":
                    return
                if replace and found.kind == "view":
                    own = Wanted(found.name, lambda: frame, text, properties or {}, comment)
                    self._rebuild(own, same_columns=True)
                    return
                raise RelationExistsError(
                    f"there is a {found.kind} {found.name!r} already; drop it first, or choose "
                    "another name"
                )
            self._definer.define([Wanted(name, lambda: frame, text, properties or {}, comment)])

    def drop(self, name: str) -> None:
        """Remove a view, and what it kept that no other view needs."""
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.find(name, "view")
            users = self._relations.users_of(found.name)
            if users:
                raise WindrowError(
                    f"view {found.name} is used by {', '.join(users)}; drop "
                    f"{'it' if len(users) == 1 else 'them'} first"
                )
            dropped = self.planning.unused_without([found.name])
            commit = Commit(
                DEFINE,
                self._history.next_time(),
                dropped=dropped,
                catalogue={found.name: None},
                note={"dropped": found.name},
            )
            self._history.commit(commit)
            self.planning.forget(found.name)
            self._relations.forget(found.name)

    def refresh_view(self, name: str) -> None:
        """Rebuild a view, and all that read it, from their inputs as they are, in one commit."""
        with self._history.claim_ticks():
            self._history.refresh()
            found = self._relations.find(name, "view")
            definition = ViewDefinition.from_json(found.definition)
            self._rebuild(self._same(found.name, definition), same_columns=False)

    def _same(self, name: str, definition: ViewDefinition) -> Wanted:
        """A view as it was defined, to be made again."""
        return Wanted(
            name,
            lambda: self.planning.frame_of(name, definition),
            definition.sql,
            definition.properties,
            definition.comment,
        )

    def _rebuild(self, wanted: Wanted, *, same_columns: bool) -> None:
        """Rebuild a view, and with it all views that read it: their state belongs to its rows."""
        readers = self._relations.readers_of(wanted.name)
        if readers and same_columns:
            before = _types(self._relations.find(wanted.name).schema)
            after = _types(wanted.frame().schema)
            if before != after:
                raise WindrowError(
                    f"view {wanted.name} is read by {', '.join(readers)}, and would have other "
                    f"columns: ({after}) instead of ({before}). Drop "
                    f"{'it' if len(readers) == 1 else 'them'} first, or keep the columns"
                )
        known = [ViewDefinition.from_json(self._history.catalogue[name]) for name in readers]
        rest = [self._same(name, one) for name, one in zip(readers, known, strict=True)]
        self._definer.define([wanted, *rest], replaced=[wanted.name, *readers])

    def tick(self) -> TickSummary:
        """Bring all views to the newest time of their inputs."""
        self._history.refresh()
        if self._history.ticked == self._history.time:
            return TickSummary(self._history.ticked)
        with self._history.claim_ticks():
            self._history.refresh()
            before = self._ticker.committed
            try:
                done = self._ticker.tick()
            except WindrowError as error:
                note_failure(self._store, error, self._history.time, self._named_by(error))
                raise
        # Without the claim: meanwhile, other processes may tick.
        if self._ticker.committed > before and self._ticker.committed % UPKEEP_TICKS == 0:
            self._upkeep()
        return done

    def _named_by(self, error: WindrowError) -> str | None:
        """The view whose job failed: its error begins with its name."""
        text = str(error)
        views = (one.name for one in self._relations.known("view"))
        found = (name for name in views if text.startswith((f"view {name}:", f"view {name},")))
        return max(found, key=len, default=None)

    def _upkeep(self) -> None:
        """Merge what many ticks have written, and remove what is dead, once in a process."""
        with suppress(WindrowError):  # the tick is committed; upkeep comes again
            self._history.maintain()
            if not self._swept:
                self._swept = True
                self.sweep()

    def sweep(self, *, hours: int = SWEEP_HOURS) -> list[str]:
        """Remove what dead processes left, so many hours ago; the names of what was removed.

        With 0 hours, no other process may be writing.
        """
        return [*self._history.sweep(hours=hours), *self._folders.sweep(hours)]

    def close(self) -> None:
        """Remove the folders of jobs, and end the threads. What is needed again is made again."""
        self.planning.close()
        self._folders.close()
        self._ticker.close()


def _types(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
