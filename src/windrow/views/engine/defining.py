"""Defining views: planned, given collections for what they keep, filled, and committed at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windrow.errors import WindrowError
from windrow.shard.spec import by_hash
from windrow.spark.progress import Progress
from windrow.spark.settings import settings_of
from windrow.spark.tasks import WrittenFile
from windrow.views.costs import ticks
from windrow.views.costs.catalogue import keeps
from windrow.views.engine.arranging import fill, placed
from windrow.views.engine.definition import ViewDefinition
from windrow.views.engine.planning import Planning
from windrow.views.engine.ticker import Computed, Ticker
from windrow.views.engine.ticking import extended
from windrow.views.history.collections import Collection
from windrow.views.history.commits import DEFINE, Commit
from windrow.views.history.history import History
from windrow.views.plan.monotonic import growth, relied_on
from windrow.views.plan.nodes import Arrangement, ViewPlan
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations
from windrow.views.run.jobs import JobFolders, ViewJob
from windrow.views.run.task import Reported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Wanted:
    """A view to be made, or made again. `frame` gives its query over leaves as they are by then."""

    name: str
    frame: Callable[[], DataFrame]
    text: str | None
    properties: Mapping[str, str]
    comment: str | None


@dataclass
class _Made:
    """Views as they are planned, before they are filled.

    `rows_by_key` are relations, with the collections for their rows by key, that are filled before
    a view; `wider` maps collections to those with more columns that take their places.
    """

    jobs: list[tuple[ViewJob, ViewDefinition]] = field(default_factory=list)
    rows_by_key: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)


class Definer:
    """Makes views, or makes them again; who calls it has claimed the ticks."""

    def __init__(
        self,
        history: History,
        relations: Relations,
        planning: Planning,
        ticker: Ticker,
        folders: JobFolders,
        progress: Progress | None,
    ) -> None:
        self._history, self._relations = history, relations
        self._planning, self._ticker = planning, ticker
        self._folders, self._progress = folders, progress

    def define(self, wanted: Sequence[Wanted], replaced: Sequence[str] = ()) -> None:
        """Make views, in place of those that are `replaced`, in one commit.

        Each comes after those that it reads. All are planned before one is filled.
        """
        frames = dict(self._planning.frames)
        created: dict[str, dict[str, Any]] = {}
        try:
            made = self._defined(wanted, replaced, created)
            # A view that is replaced may be one that cannot be ticked. The others are, in the
            # commit that replaces it: a tick of its own would be one that has left a view behind.
            pending = self._pending(replaced) if replaced else None
            if not replaced:
                self._ticker.tick()
            at = self._history.ticked if pending is None else pending.upto
            known = {} if pending is None else dict(pending.collections)
            before = {} if pending is None else pending.appends
            appends: dict[str, Sequence[WrittenFile]] = {}
            runs = {} if pending is None else dict(pending.runs)
            rows_by_key = {id for several in made.rows_by_key.values() for _, id in several}
            for job, definition in made.jobs:
                for source, id in made.rows_by_key.get(job.name, ()):
                    appends[id] = self._fill_rows(source, id, at, known, definition.settings)
                own = {id for id in job.places.values() if id in created}
                own -= rows_by_key | set(appends)
                started = time.perf_counter()
                reported = self._fill(job, own, at, known)
                runs[job.name] = ticks.noted(job, reported, time.perf_counter() - started)
                appends |= {id: reported.parts.get(id, []) for id in own}
                output = definition.collection
                known[output] = extended(self._history.collection(output), appends[output], at)
            names = [job.name for job, _ in made.jobs]
            seconds = round(sum(runs[name]["seconds"] for name in names), 3)
            dropped = [*self._planning.unused_without(replaced), *made.wider]
            self._history.commit(
                Commit(
                    DEFINE,
                    at,
                    appends={
                        **{id: one for id, one in before.items() if id not in made.wider},
                        **appends,
                    },
                    created=created,
                    dropped=list(dict.fromkeys(dropped)),
                    catalogue={
                        **self._moved(made.wider, [*names, *replaced]),
                        **{job.name: definition.to_json() for job, definition in made.jobs},
                    },
                    ticked=None if pending is None else at,
                    note={"view": ", ".join(names), "seconds": seconds, ticks.NOTE: runs},
                ),
                expected=None if pending is None else pending.version,
            )
        except BaseException:
            for id in created:
                self._history.discard_collection(id)
            self._planning.frames = frames
            raise
        for job, _ in made.jobs:
            self._planning.keep(job)

    def _defined(
        self,
        wanted: Sequence[Wanted],
        replaced: Sequence[str],
        created: dict[str, dict[str, Any]],
    ) -> _Made:
        """Plans, and collections for what they keep, which are noted in `created`."""
        shared = self._planning.arrangements(without=replaced)
        catalogue: dict[str, Mapping[str, Any]] = {}
        made = _Made()
        planned: list[tuple[ViewPlan, ViewDefinition]] = []
        for one in wanted:
            with self._relations.as_if(catalogue):
                frame = one.frame()
                settings = settings_of(frame.sparkSession)
                plan = self._planning.plan(one.name, frame, settings, one.properties)
                inputs = dict.fromkeys(each.relation for each in plan.inputs)
                if one.text is not None:  # what the optimiser leaves out is mentioned all the same
                    inputs |= dict.fromkeys(self._relations.mentioned_by(one.text))
                else:
                    self._planning.frames[one.name] = frame
                    self._refuse_nullable(one.name, inputs, catalogue)
            for name in inputs:
                if name in replaced and name not in catalogue:
                    raise WindrowError(
                        f"view {one.name} cannot be replaced by a query that reads it"
                        + ("" if name == one.name else f", through {name}")
                    )
            for arrangement in plan.arrangements.values():
                self._place(arrangement, one.name, shared, created, made)
            output = self._history.create_collection(plan.output.schema, plan.output.key)
            created[output] = {"retain": "history", "view": one.name}
            places = {name: shared[name] for name in plan.arrangements}
            expected = self._planning.estimates(plan, settings)
            definition = ViewDefinition(
                output,
                frame.schema.json(),
                one.text,
                settings,
                tuple(inputs),
                places,
                str(plan),
                dict(one.properties),
                one.comment,
                choices=dict(plan.choices),
                append_only=relied_on(plan.root),
                only_grows=growth(plan.root).only_grows,
                keeps=keeps(plan, {**places, plan.output.name: output}, expected),
            )
            catalogue[one.name] = definition.to_json()
            planned.append((plan, definition))
        for one, (plan, definition) in zip(wanted, planned, strict=True):
            # A later view may have made what an earlier one keeps wider.
            final = ViewDefinition.from_json(_moved(definition.to_json(), made.wider))
            made.jobs.append((self._planning.job_of(one.name, plan, final), final))
        self._forget_narrow(created, made)
        return made

    def _place(
        self,
        arrangement: Arrangement,
        view: str,
        shared: dict[str, str],
        created: dict[str, dict[str, Any]],
        made: _Made,
    ) -> None:
        """Find the collection of what an operator keeps, or make one."""
        existing = shared.get(arrangement.name)
        if arrangement.source is not None:  # its columns are those that any view needs
            found = placed(self._history, arrangement, existing)
            shared[arrangement.name] = found.id
            if found.is_new:
                created[found.id] = _facts(arrangement, view)
                made.rows_by_key.setdefault(view, []).append((arrangement.source, found.id))
            if found.replaces is not None:
                replaced = {found.replaces, *_sources(made.wider, found.replaces)}
                made.wider |= dict.fromkeys(replaced, found.id)
        elif existing is None:
            order = by_hash(*arrangement.order)
            id = self._history.create_collection(arrangement.schema, arrangement.key, order)
            created[id] = _facts(arrangement, view)
            shared[arrangement.name] = id

    def _forget_narrow(self, created: dict[str, dict[str, Any]], made: _Made) -> None:
        """Discard collections that were made wider before they were ever filled."""
        for id in [id for id in made.wider if id in created]:
            del created[id], made.wider[id]
            self._history.discard_collection(id)
            for several in made.rows_by_key.values():
                several[:] = [one for one in several if one[1] != id]

    def _refuse_nullable(
        self, name: str, inputs: Iterable[str], catalogue: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """A DataFrame was analysed over columns as they were; it may rely on having no NULLs."""
        for one in inputs:
            if one not in catalogue:
                continue
            before = Relation(one, self._history.catalogue[one]).schema
            after = Relation(one, catalogue[one]).schema
            if any(b.nullable > a.nullable for a, b in zip(before, after, strict=True)):
                raise WindrowError(
                    f"view {name} was made of a DataFrame over {one} before it could hold NULL; "
                    "drop it first, and make it again"
                )

    def _fill_rows(
        self,
        source: str,
        id: str,
        at: int,
        known: Mapping[str, Collection],
        settings: Mapping[str, str],
    ) -> Sequence[WrittenFile]:
        """Fill the rows of a relation by key; `known` has what is about to be committed."""
        rows = known.get(source) or self._history.collection(source)
        target = self._history.collection(id)
        partitions = self._ticker.partitions(rows.updates_since(0))
        spark = self._planning.catalyst(settings).spark
        return fill(spark, self._folders, rows, target, at, partitions)

    def _moved(self, wider: Mapping[str, str], but: Sequence[str]) -> dict[str, Any]:
        """Definitions of views whose rows of relations are now found in wider collections."""
        return {
            view.name: _moved(self._history.catalogue[view.name], wider)
            for view in self._relations.known("view")
            if view.name not in but
            and not wider.keys().isdisjoint(view.definition["arrangements"].values())
        }

    def _fill(
        self, job: ViewJob, written: set[str], at: int, known: Mapping[str, Collection]
    ) -> Reported:
        """Compute a view from all that there is; `known` has what is about to be committed."""
        collections = {id: known.get(id) or self._history.collection(id) for id in job.collections}
        rows = sum(collections[one.collection].updates_since(0) for one in job.plan.inputs)
        with self._stage(f"filling {job.name}", rows):
            return job.run(
                collections,
                written,
                lower=0,
                time=at,
                fill=True,
                partitions=self._ticker.partitions(rows),
            )

    def _pending(self, replaced: Sequence[str]) -> Computed | None:
        """What a tick of the other views changes, to be committed together with those replaced.

        None if nothing does, or if one of the others cannot be ticked now: then what is replaced is
        at the time of the last tick, as all are.
        """
        try:
            return self._ticker.computed(without=replaced)
        except WindrowError:
            return None

    @contextmanager
    def _stage(self, title: str, rows: int) -> Iterator[None]:
        if self._progress is None:
            yield
        else:
            with self._progress.stage(title, rows):
                yield


def _sources(wider: Mapping[str, str], id: str) -> list[str]:
    """The collections whose place `id` has taken."""
    return [old for old, new in wider.items() if new == id]


def _moved(definition: Mapping[str, Any], wider: Mapping[str, str]) -> dict[str, Any]:
    """A view's definition, with what it keeps in the collections that took the place of others."""
    kept = [
        {**one, "collection": wider.get(one["collection"], one["collection"])}
        for one in definition.get("keeps", ())
    ]
    places = {name: wider.get(id, id) for name, id in definition["arrangements"].items()}
    return {**definition, "arrangements": places, "keeps": kept}


def _facts(arrangement: Arrangement, view: str) -> dict[str, Any]:
    """What the history says of a collection that an operator keeps."""
    return {"retain": "latest", "what": str(arrangement), "view": view}
