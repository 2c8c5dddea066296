"""Looking at a source: what has changed since the last commit, by names, stamps and logs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from windrow.shard.predicate import Predicate, col
from windrow.sources.delta import DeltaContent
from windrow.sources.delta_log import DeltaCommit, NoFeedError, commits_between
from windrow.views.sources.days import checked_days
from windrow.views.sources.files import SourceFiles
from windrow.views.sources.found import BoundSource, Found
from windrow.views.sources.lots import FileRead, Lots
from windrow.views.sources.numbers import MISSING, NUMBER, quarantined
from windrow.views.sources.tables import AT, SourceTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class FileChanges:
    """What became of the files of a table: those to read, and numbers of rows that are gone.

    `state` is what the catalogue says of the table afterwards, with `next`, the next number. `why`
    says why a Delta table's change data could not be read.
    """

    table: SourceTable
    reads: tuple[FileRead, ...]
    gone: tuple[int, ...]
    state: Mapping[str, Any]
    next: int
    stamps: Mapping[str, str]
    before: Mapping[str, Any]
    why: str | None = None

    @property
    def files(self) -> SourceFiles:
        assert self.table.files is not None
        return self.table.files

    @property
    def note(self) -> dict[str, Any]:
        found = {"read": len(self.reads), "gone": len(self.gone)}
        return found if self.why is None else {**found, "by files": self.why}

    @property
    def shrunk(self) -> list[str]:
        """What rows that go were in: files that are gone, or say so."""
        known = self.before.get("files", {}).items()
        numbers = {int(first): name or self.files.store.uri for name, (first, _) in known}
        changes = [read.name for read in self.reads if read.changes or self.table.signs is not None]
        return [*(numbers[number] for number in self.gone if number in numbers), *changes]

    def moved(self) -> bool:
        """Whether a file that was read is no longer what it was. Those of Delta do not change."""
        if self.files.format == "delta":
            return any(not self.files.store.exists(read.name) for read in self.reads)
        now = self.files.stamps()
        return any(now.get(read.name) != self.stamps[read.name] for read in self.reads)

    def frames(
        self, bound: BoundSource, *, after: int | None = None, retract: bool = True
    ) -> list[DataFrame]:
        """The updates of files that are new, and what was stored of those that are gone.

        With `after`, only updates that became known later than that, or that have no time.
        """
        from pyspark.sql import functions as F  # noqa: N812

        found: list[DataFrame] = []
        for feed in (False, True):
            numbers = {read.name: read.number for read in self.reads if read.changes is feed}
            if not numbers:
                continue
            load = self.files.changes if feed else self.files.rows
            rows = load(bound.session, self.table.columns, numbers)
            updates = self.table.updates(rows, feed=feed, at=bound.dated)
            if after is not None:
                updates = updates.where((F.col(AT) > after) | (F.col(NUMBER) < MISSING))
            found.append(bound.stored(updates))
        if self.gone and retract:
            where: Predicate = col(NUMBER).is_in(self.gone)
            if after is not None:
                where &= col(AT) > after
            if self.table.signs is not None:
                where |= col(NUMBER).is_in(quarantined(self.gone))
            found.append(bound.negated(where, bound.stored_names))
        return found


def file_changes(
    bound: BoundSource, role: str, next: int, afresh: bool = False
) -> FileChanges | None:
    """What changed in the files of a table; None if nothing did.

    With `afresh`, as if nothing had been read: all is read again.
    """
    table, state = bound.tables[role], bound.state(role)
    assert table.files is not None
    files, known = table.files, {} if afresh else state
    lots, why = _lots(known, next), None
    more: dict[str, Any] = {}
    if files.format == "delta":
        content = files.delta()
        more = {"version": content.version, "id": content.id}
        if all(known.get(name) == value for name, value in more.items()):
            return None
        found = files.delta_stamps(content)
        if content.feeds and known.get("id") == content.id:
            try:
                _follow(lots, files, content, int(known["version"]))
            except NoFeedError as error:
                lots, why = _lots(known, next), str(error)
        elif known.get("id", content.id) != content.id:
            why = "it is another table than the one that was read"
    else:
        found = files.stamps()
    lots.match(found)  # after change data, nothing is left to do
    if not afresh and not lots.reads and not lots.gone and lots.files == known["files"]:
        return None
    days = checked_days(bound.session, table, found, known.get("days", {}))
    if days is not None:
        more["days"] = days
    return FileChanges(
        table,
        tuple(lots.reads),
        tuple(sorted(lots.gone)),
        {**state, "files": lots.files, "numbers": lots.numbers, **more},
        lots.next,
        found,
        known,
        why,
    )


def _lots(state: Mapping[str, Any], next: int) -> Lots:
    return Lots(state.get("files", {}), state.get("numbers", {}), next)


def _follow(lots: Lots, files: SourceFiles, content: DeltaContent, taken: int) -> None:
    """Do as the commits of a Delta table did after the version that was taken over."""
    for commit in commits_between(files.store, taken, content.version):
        lots.follow(_in_range(files, commit))
    there = set(files.delta_stamps(content))
    for read in lots.reads:
        if read.name not in there and not files.store.exists(read.name):
            raise NoFeedError(f"{read.name} is deleted (VACUUM)")


def _in_range(files: SourceFiles, commit: DeltaCommit) -> DeltaCommit:
    """A commit, as far as it is about files of the days that are read."""
    days = files.days
    if days is None or days.is_open:
        return commit

    def chosen(names: tuple[str, ...]) -> tuple[str, ...]:
        found = files.by_day(names)
        if found is None:
            return names
        return tuple(name for day, of_day in found.items() if day in days for name in of_day)

    return replace(
        commit,
        added=chosen(commit.added),
        removed=chosen(commit.removed),
        changes=chosen(commit.changes),
    )


def look_at_files(bound: BoundSource) -> Found | None:
    """A source of one table whose files are rows, or updates."""
    (role,) = (one for one in bound.tables if one != "stream")
    changes = file_changes(bound, role, int(bound.relation.definition["next"]))
    if changes is None:
        return None
    found = changes

    def updates() -> DataFrame | None:
        frames = found.frames(bound)
        return reduce(lambda a, b: a.unionByName(b), frames) if frames else None

    signed = bound.tables[role].signs is not None
    return Found(
        {"tables": {role: found.state}, "next": found.next},
        found.note,
        updates,
        signed or any(read.changes for read in found.reads),
        found.shrunk,
        found.moved,
    )
