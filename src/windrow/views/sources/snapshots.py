"""Sources of dated snapshots: the newest is the table, and mutations after it change it.

Stored are differences. The rows of the newest snapshot are the sum of all updates up to the end of
its day, whatever they are from; a newer snapshot adds what it has beyond that sum, and retracts
what it lacks. Mutations are stored with their times: those up to the end of the day are part of
that sum, and stay in it if their file goes; only later ones go with their file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from windrow.errors import DataError
from windrow.shard.predicate import col
from windrow.sources.changes import snapshot_times
from windrow.sources.definitions import EntitySource
from windrow.sources.files import NO_VALUE, partition_values
from windrow.spark.schemas import quoted
from windrow.updates import DIFF
from windrow.views.sources.days import days_of_files
from windrow.views.sources.files import SourceFiles
from windrow.views.sources.found import BoundSource, Found, difference, with_base
from windrow.views.sources.look import FileChanges, file_changes
from windrow.views.sources.numbers import BASE, MISSING, NUMBER
from windrow.views.sources.tables import AT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

_DONE = "_SUCCESS"  # a file that Hadoop's writers leave when they are done
_AT_WORK = ("_temporary", ".spark-staging")  # how folders begin in which they are at work


@dataclass(frozen=True)
class Snapshot:
    """The newest snapshot: its day, the time at which it is the table, and its files.

    `days` are the days of each file, with its stamp, if folders do not tell them.
    """

    day: str
    time: int
    stamps: Mapping[str, str]
    days: Mapping[str, Any] | None = None

    @property
    def state(self) -> dict[str, Any]:
        """For the catalogue."""
        files = {name: [BASE, stamp] for name, stamp in self.stamps.items()}
        found = {"day": self.day, "files": files}
        return found if self.days is None else {**found, "days": self.days}


def complete_days(days: Mapping[str, Any], names: Sequence[str], column: str) -> list[str]:
    """The days that are there as a whole, as far as writers say so.

    >>> names = ["ds=1/_temporary/0/x", "ds=2/x", "ds=3/_SUCCESS", "ds=3/x"]
    >>> complete_days({"1": [], "2": [], "3": []}, names[:2], "ds")
    ['2', '3']
    >>> complete_days({"1": [], "2": [], "3": []}, names, "ds")
    ['3']
    """
    done, busy = set(), set()
    for name in names:
        day = partition_values(name).get(column)
        parts = name.split("/")
        if parts[-1] == _DONE and day is not None:
            done.add(day)
        if any(part.startswith(_AT_WORK) for part in parts) and day is not None:
            busy.add(day)
    return sorted(day for day in days if day not in busy and (day in done or not done))


def newest_snapshot(bound: BoundSource) -> Snapshot:
    """The newest snapshot that is complete."""
    table, known = bound.tables["snapshots"], bound.state("snapshots")
    source, files = table.source, table.files
    assert isinstance(source, EntitySource)
    assert files is not None
    assert files.days is not None
    everything = {} if files.format == "delta" else files.all_stamps()
    stamps = files.visible(everything) if everything else files.stamps()
    by_day, of_files = files.by_day(list(stamps)) if stamps else {}, None
    if by_day is None:
        of_files = days_of_files(bound.session, table, stamps, known.get("days", {}))
        by_day = {}
        for name, (_, days) in of_files.items():
            for day in days:
                if day is None:
                    raise DataError(
                        f"{bound.what}: {name}: {files.days.column!r} is NULL in a row; it has to "
                        "hold the day of its snapshot"
                    )
                by_day.setdefault(day, []).append(name)
        files.days.check(sorted(by_day), bound.what)
    by_day.pop(NO_VALUE, None)
    complete = complete_days(by_day, list(everything), files.days.column)
    chosen = [day for day in complete if day in files.days]
    time = snapshot_times(source, chosen)[-1]
    of_day = {name: stamps[name] for name in sorted(by_day[chosen[-1]])}
    return Snapshot(chosen[-1], time, of_day, of_files)


def look_at_snapshots(bound: BoundSource) -> Found | None:
    """A source of dated snapshots, with mutations or without."""
    definition, known = bound.relation.definition, bound.state("snapshots")
    newest = newest_snapshot(bound)
    state = {**known, **newest.state}
    before = known.get("day")
    same = before == newest.day and state["files"] == known["files"]
    tables: dict[str, Any] = {} if state == known else {"snapshots": state}
    mutations: FileChanges | None = None
    # Of mutations up to a snapshot nothing is kept: if it goes, they have to be read again.
    afresh = before is None or newest.day < before
    if bound.dated:
        next = int(definition["next"])
        mutations = file_changes(bound, "mutations", next, afresh and not same)
        if mutations is not None:
            tables["mutations"] = mutations.state
    if not tables:
        return None
    files = bound.tables["snapshots"].files
    assert files is not None

    def updates() -> DataFrame | None:
        frames = []
        if not same:
            frames.append(_replacing(bound, newest, afresh))
        if mutations is not None:
            frames += mutations.frames(bound, after=newest.time, retract=not afresh)
        return reduce(lambda a, b: a.unionByName(b), frames) if frames else None

    def moved() -> bool:
        if mutations is not None and mutations.moved():
            return True
        return not same and _moved(files, newest)

    note = {} if mutations is None else mutations.note
    return Found(
        {"tables": tables, "next": definition["next"] if mutations is None else mutations.next},
        note if same else {**note, "snapshot": newest.day},
        updates,
        bound.dated,
        [f"the snapshot before {newest.day}"],
        moved,
    )


def _moved(files: SourceFiles, newest: Snapshot) -> bool:
    if files.format == "delta":  # its files do not change
        return any(not files.store.exists(name) for name in newest.stamps)
    now = files.stamps()
    return any(now.get(name) != stamp for name, stamp in newest.stamps.items())


def _replacing(bound: BoundSource, newest: Snapshot, afresh: bool) -> DataFrame:
    """The difference from what is stored, up to the snapshot's time, to the snapshot."""
    from pyspark.sql import functions as F  # noqa: N812

    table = bound.tables["snapshots"]
    assert table.files is not None
    assert table.files.days is not None
    rows = table.files.rows(bound.session, table.columns, dict.fromkeys(newest.stamps, BASE))
    day = F.col(quoted(table.files.days.column)).cast("string")
    updates = table.updates(rows.where(day == newest.day))
    time = newest.time if bound.dated else None
    snapshot = bound.stored(with_base(updates, time))
    if not bound.collection.parts:
        return snapshot
    if bound.dated and afresh:  # each update is taken back as it is: later ones go with their files
        return snapshot.unionByName(bound.negated(col(NUMBER) != MISSING, bound.stored_names))
    where = (col(NUMBER) != MISSING) & (col(AT) <= newest.time) if bound.dated else None
    changed = difference([snapshot, bound.negated(where, bound.names)], bound.names)
    columns = [F.col(quoted(name)) for name in [*bound.stored_names, DIFF]]
    return with_base(changed, time).select(*columns)
