"""Generations: which records of a group are served, and how far they are. One note for each group.

    current    what is served
    staged     what an upload is writing; it becomes current when it is complete and as far on
    retired    what nobody serves any more, and has to be removed
    swept      what was removed, and is looked at once more: a follower that had begun before may
               have written records since

The note is changed in one step, and a fetch reads it together with the records, so a group is
served from one generation at any time, whatever happens to an upload.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from windrow.online.keys import prefix
from windrow.online.served_view import Servable, served_of
from windrow.online.stores.store import RecordStore

GROUPS = "group/"
_COUNTER = "generations"


def note_name(group: str) -> str:
    return f"{GROUPS}{group}"


@dataclass(frozen=True)
class Generation:
    """Records of a group: for each source the time of its shard up to which all of them are.

    `fresh` says for each source when that was, by the clock. `pending` is the time up to which a
    source is being brought: if that is interrupted, it is done again up to the same time. Of a
    view, `kept` are the records that there are, and `empty` those that have no rows any more.
    """

    number: int
    served: Servable
    sealed: int
    positions: tuple[int, ...]
    fresh: tuple[int, ...]
    loaded: bool = False
    pending: tuple[int | None, ...] = ()
    kept: int = 0
    empty: int = 0

    @property
    def fresh_at(self) -> int:
        """Up to when everything has been taken in."""
        return min(self.fresh)

    def is_behind(self, other: Generation) -> bool:
        """Whether the other may have taken in more of a source that both have.

        Some of its records may be as far on as what it is on its way to.
        """
        mine = dict(zip(self.served.sources, self.positions, strict=True))
        theirs = zip(other.served.sources, other.positions, other._pending, strict=True)
        return any(mine.get(name, at) < max(at, target or at) for name, at, target in theirs)

    def advanced(self, source: int, upper: int, now: int) -> Generation:
        return replace(
            self,
            positions=_with(self.positions, source, max(self.positions[source], upper)),
            fresh=_with(self.fresh, source, max(self.fresh[source], now)),
            pending=_with(self._pending, source, None),
        )

    def bound_for(self, source: int, upper: int) -> Generation:
        """The same, on its way to `upper`; or to where it was on its way already."""
        if self._pending[source] is not None:
            return self
        return replace(self, pending=_with(self._pending, source, upper))

    @property
    def _pending(self) -> tuple[int | None, ...]:
        return self.pending or (None,) * len(self.positions)

    def destination(self, source: int) -> int | None:
        return self._pending[source]

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "served": self.served.to_json(),
            "sealed": self.sealed,
            "positions": list(self.positions),
            "fresh": list(self.fresh),
            "loaded": self.loaded,
            "pending": list(self.pending),
            "kept": self.kept,
            "empty": self.empty,
        }

    @staticmethod
    def from_json(found: dict[str, Any]) -> Generation:
        return Generation(
            found["number"],
            served_of(found["served"]),
            found["sealed"],
            tuple(found["positions"]),
            tuple(found["fresh"]),
            found["loaded"],
            tuple(found["pending"]),
            found.get("kept", 0),
            found.get("empty", 0),
        )


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


@dataclass(frozen=True)
class GroupNote:
    """What the note of a group says."""

    current: Generation | None = None
    staged: Generation | None = None
    retired: tuple[int, ...] = ()
    swept: tuple[int, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """Of the generations that are served, or are about to be."""
        return [one.number for one in (self.current, self.staged) if one is not None]

    @staticmethod
    def read(raw: bytes | None) -> GroupNote:
        if raw is None:
            return GroupNote()
        found = json.loads(raw)
        return GroupNote(
            None if found["current"] is None else Generation.from_json(found["current"]),
            None if found["staged"] is None else Generation.from_json(found["staged"]),
            tuple(found["retired"]),
            tuple(found.get("swept", ())),
        )

    def written(self) -> bytes:
        return json.dumps(
            {
                "current": None if self.current is None else self.current.to_json(),
                "staged": None if self.staged is None else self.staged.to_json(),
                "retired": list(self.retired),
                "swept": list(self.swept),
            }
        ).encode()

    def stages(self, generation: Generation) -> GroupNote:
        """An upload begins; what an interrupted one wrote is retired."""
        retired = self.retired
        if self.staged is not None:
            retired += (self.staged.number,)
        return replace(self, staged=generation, retired=retired)

    def changed(self, number: int, change: Callable[[Generation], Generation]) -> GroupNote:
        """The same, with one of its generations changed, if it still has it."""
        current, staged = self.current, self.staged
        if current is not None and current.number == number:
            current = change(current)
        if staged is not None and staged.number == number:
            staged = change(staged)
        return replace(self, current=current, staged=staged)

    def promoted(self) -> GroupNote:
        """The staged generation is served, if it is complete and as far on as the current one."""
        staged, current = self.staged, self.current
        if staged is None or not staged.loaded:
            return self
        if current is None:
            return replace(self, current=staged, staged=None)
        if staged.is_behind(current):
            return self
        retired = (*self.retired, current.number)
        return replace(self, current=staged, staged=None, retired=retired)


def read_note(store: RecordStore, group: str) -> GroupNote:
    (raw,), _ = store.read([note_name(group)], [])
    return GroupNote.read(raw)


def change_note(
    store: RecordStore, group: str, change: Callable[[GroupNote], GroupNote]
) -> GroupNote:
    """Change the note of a group in one step; returns it as it is now."""
    made: list[GroupNote] = []

    def changed(raw: bytes | None) -> bytes:
        note = change(GroupNote.read(raw))
        made.append(note)
        return note.written()

    store.change_note(note_name(group), changed)
    return made[-1]


def new_generation(store: RecordStore) -> int:
    """A number that no generation of this store ever had."""
    made: list[int] = []

    def next_number(raw: bytes | None) -> bytes:
        made.append(int(raw or b"0") + 1)
        return str(made[-1]).encode()

    store.change_note(_COUNTER, next_number)
    return made[-1]


def sweep(store: RecordStore, group: str) -> None:
    """Remove the records of retired generations, and what came back of those before them."""
    found = read_note(store, group)
    if not found.retired:
        return
    for number in (*found.swept, *found.retired):
        store.remove(prefix(number))

    def removed(note: GroupNote) -> GroupNote:
        left = tuple(n for n in note.retired if n not in found.retired)
        again = tuple(n for n in note.swept if n not in (*found.swept, *found.retired))
        return replace(note, retired=left, swept=(*again, *found.retired))

    change_note(store, group, removed)
