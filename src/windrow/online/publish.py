"""Publishing: rows of views and tables become records by key, after each tick.

A generation of records is filled once, from a snapshot at the time of a tick. After later ticks,
what changed since goes into the records that it touches, up to the time of the last. As with groups
(see `windrow.online.follow`), the end of a span is noted before it is applied, and a record that
has it leaves it out; so a publication that was interrupted is taken up by the next.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.errors import CommitConflictError, DefinitionError
from windrow.features.inputs.layout import key_type
from windrow.online.generations import (
    GROUPS,
    Generation,
    GroupNote,
    change_note,
    new_generation,
    note_name,
    read_note,
    sweep,
)
from windrow.online.keys import check_key_type
from windrow.online.plans import join_note
from windrow.online.served_view import ServedView, is_view
from windrow.online.stores.store import RecordStore
from windrow.online.upload import check_reachable
from windrow.online.view_records import Adding, Sums, encode_records
from windrow.rows.types import canonical_type
from windrow.shard.read import Read
from windrow.spark.progress import Progress
from windrow.spark.session import Engine
from windrow.spark.tasks import Written, run_numbered, run_writers
from windrow.storage.store import Store
from windrow.updates import DIFF, int64_values
from windrow.views.history.collections import Collection
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.online import is_online, online_keys, online_text
from windrow.views.relations.relations import Relations

_TOGETHER = 200_000  # updates that one task applies
_AT_ONCE = 50_000  # records that are read and written in one go
_EMPTY = 50_000  # records without rows that are always put up with


def served_view(relation: Relation) -> ServedView:
    """How a relation is served; a DefinitionError if it cannot be."""
    what = f"{relation.kind} {relation.name}"
    text = online_text(relation.definition.get("properties"))
    assert text is not None
    storable = relation.storable
    keys = online_keys(text, relation.schema.names, what)
    types: dict[str, pa.DataType] = {}
    for field, kept, stored in zip(relation.schema, storable.columns, storable.arrow, strict=True):
        collated = kept.back is not None and field.dataType.typeName() == "string"
        if (kept.back is not None and not collated) or (collated and field.name in keys):
            raise DefinitionError(
                f"{what}: column {field.name!r} is {field.dataType.simpleString()}, which cannot "
                f"be {'a key' if field.name in keys else 'served'} online; cast it, or leave it out"
            )
        types[field.name] = canonical_type(stored.type, f"{what}: column {field.name!r}")
        if field.name in keys:
            check_key_type(types[field.name], f"{what}: key {field.name!r}")
    names = tuple(name for name in types if name not in keys)
    return ServedView(
        relation.name,
        relation.kind,
        relation.collection,
        keys,
        tuple(key_type(types[name]) for name in keys),
        names,
        tuple(types[name] for name in names),
    )


class Publisher:
    """Keeps the records of a project's relations up to its ticks."""

    def __init__(
        self,
        engine: Engine,
        root: Store,
        records: Callable[[], RecordStore],
        progress: Callable[[], Progress],
    ) -> None:
        self._engine, self._root = engine, root
        self._open, self._progress = records, progress
        self._done: tuple[int, frozenset[str]] | None = None  # a version, and what was served

    def check(self, relation: Relation) -> None:
        """Refuse a relation that cannot be served, or whose name is that of something else."""
        view, records = served_view(relation), self._open()
        refuse_taken(records, view)
        check_reachable(self._engine.given, records)

    def publish(self, history: History, relations: Relations) -> None:
        """Bring all records up to the last tick; what is not to be served is withdrawn."""
        if self._is_done(history):
            return
        try:
            with history.claim_publishing():
                wanted = [one for one in relations.known("view", "table") if is_online(one)]
                records, names = self._open(), frozenset(one.name for one in wanted)
                if self._done is None or self._done[1] != names:
                    for name in views_in(records):
                        if name not in names:
                            withdraw(records, name)
                for relation in wanted:
                    self._bring(history, relation)
                self._done = history.version, names
        except CommitConflictError as error:
            warnings.warn(f"views are not served as of this tick yet: {error}", stacklevel=5)

    def _is_done(self, history: History) -> bool:
        """Whether this process has published this version, and the store has it still."""
        if self._done is None or self._done[0] != history.version:
            return False
        notes, _ = self._open().read([note_name(name) for name in self._done[1]], [])
        return None not in notes

    def withdraw(self, name: str) -> None:
        """Serve a relation no more."""
        self._done = None
        withdraw(self._open(), name)

    def _bring(self, history: History, relation: Relation) -> None:
        """Bring the records of one relation to the last tick."""
        view, records = served_view(relation), self._open()
        refuse_taken(records, view)
        upper = history.ticked + 1
        collection = history.collection(relation.collection)
        current = read_note(records, view.name).current
        if current is None or not _can_follow(current, view, collection):
            self._load(history, view, upper)
            return
        while current is not None and current.positions[0] < upper:
            current = self._follow(history, current, view, upper)

    def _load(self, history: History, view: ServedView, upper: int) -> None:
        """Write all records anew, and serve them in place of those that are served."""
        records = self._open()
        check_reachable(self._engine.given, records)
        number = new_generation(records)
        generation = Generation(number, view, 0, (upper,), (upper - 1,))
        change_note(records, view.name, lambda note: note.stages(generation))
        reader = f"serving {view.name}"
        with history.hold([view.collection], upper - 1, reader=reader) as held:
            collection = held[view.collection]
            read = collection.snapshot(upper - 1, columns=[*view.keys, *view.names])
            rows = sum(part.rows for part in collection.parts)
            with self._progress().stage(reader, rows):
                done = self._run(read, rows, _Loading(view, number, upper, records))

        def loaded(one: Generation) -> Generation:
            return replace(one, loaded=True, kept=done.counters.get("keys", 0))

        change_note(records, view.name, lambda note: note.changed(number, loaded).promoted())
        sweep(records, view.name)

    def _follow(
        self, history: History, generation: Generation, view: ServedView, upper: int
    ) -> Generation | None:
        """Apply the span that is noted, or else all up to `upper`."""
        records, lower = self._open(), generation.positions[0]
        number = generation.number
        collection = history.collection(view.collection)
        target, done = upper, Written([])
        rows = collection.updates_since(lower)
        if rows:
            note = change_note(
                records,
                view.name,
                lambda note: note.changed(number, lambda one: one.bound_for(0, upper)),
            )
            bound = note.current
            if bound is None or bound.number != number:
                return None
            target = bound.destination(0) or upper
            with history.hold([view.collection], lower - 1, reader=f"serving {view.name}") as held:
                columns = [*view.keys, *view.names]
                read = held[view.collection].changes(lower, target, columns=columns)
                done = self._run(read, rows, _Applying(view, number, lower, target, records))

        def advanced(one: Generation) -> Generation:
            made, emptied = done.counters.get("made", 0), done.counters.get("emptied", 0)
            further = one.advanced(0, target, target - 1)
            return replace(further, kept=one.kept + made, empty=one.empty + emptied)

        return change_note(records, view.name, lambda note: note.changed(number, advanced)).current

    def _run(self, read: Read, rows: int, write: _Loading | _Applying) -> Written:
        """Give all updates to tasks: to one if they are few, else those of a key to the same."""
        spark = self._engine.given
        if rows <= _TOGETHER:
            return run_numbered(spark, 1, self._root, lambda _: write(read.batches()))
        names = read.schema.names
        places = [f"c{names.index(key)}" for key in write.view.keys]
        tasks = max(2 * self._engine.tasks, -(-rows // (5 * _TOGETHER)))
        frame = read.dataframe(spark).toDF(*(f"c{i}" for i in range(len(names))))
        return run_writers(
            frame.repartition(tasks, *places),
            self._root,
            lambda batches: write(batch.rename_columns(names) for batch in batches),
        )


def _can_follow(current: Generation, view: ServedView, collection: Collection) -> bool:
    """Whether a generation is of this definition, and can be brought further."""
    if current.served.digest != view.digest or current.positions[0] <= collection.since:
        return False
    return current.empty <= _EMPTY or 2 * current.empty <= current.kept


@dataclass(frozen=True)
class _Loading:
    """In a task: writes the records of all keys of some rows. Picklable."""

    view: ServedView
    number: int
    upper: int
    records: RecordStore

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Written:
        keys = 0
        for sums in _pieces(_added(self.view, self.number, batches)):
            made = encode_records(self.view, sums.rows, sums.counts, self.upper)
            self.records.load(list(zip(sums.keys.to_pylist(), made, strict=True)))
            keys += len(made)
        return Written([], 0, {"keys": keys})


@dataclass(frozen=True)
class _Applying:
    """In a task: adds changes to the records of their keys. Picklable."""

    view: ServedView
    number: int
    lower: int
    upper: int
    records: RecordStore

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Written:
        made = emptied = 0
        for sums in _pieces(_added(self.view, self.number, batches)):
            adding = Adding(self.view, sums, self.lower, self.upper)
            self.records.update(sums.keys.to_pylist(), adding)
            made, emptied = made + adding.made, emptied + adding.emptied
        return Written([], 0, {"made": made, "emptied": emptied})


def _added(view: ServedView, number: int, batches: Iterable[pa.RecordBatch]) -> Sums | None:
    """All updates, added up by key; of as many as a task is given, some at a time."""
    found: list[Sums] = []
    held: list[pa.RecordBatch] = []

    def add() -> None:
        table = pa.Table.from_batches(held).combine_chunks()
        diffs = int64_values(table, DIFF)
        columns = table.select([*view.keys, *view.names])
        found.append(Sums.of(view, number, columns, diffs))
        held.clear()

    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= _TOGETHER:
            add()
    if held:
        add()
    return Sums.together(found) if found else None


def _pieces(sums: Sums | None) -> Iterator[Sums]:
    for start in range(0, 0 if sums is None else len(sums.keys), _AT_ONCE):
        assert sums is not None
        end = start + _AT_ONCE
        yield Sums(
            sums.keys.slice(start, _AT_ONCE),
            sums.rows.slice(start, _AT_ONCE),
            sums.counts[start:end],
        )


def views_in(records: RecordStore) -> list[str]:
    """The names under which views and tables are served, or are about to be."""
    notes = records.notes(GROUPS)
    raws, _ = records.read(notes, [])
    return [
        name.removeprefix(GROUPS)
        for name, raw in zip(notes, raws, strict=True)
        if raw is not None and _is_view(raw)
    ]


def _is_view(raw: bytes) -> bool:
    note = json.loads(raw)
    known = [one for one in (note["current"], note["staged"]) if one is not None]
    return any(is_view(one["served"]) for one in known)


def refuse_taken(records: RecordStore, view: ServedView) -> None:
    """Refuse to serve a relation by a name that something else is served by."""
    (group, join), _ = records.read([note_name(view.name), join_note(view.name)], [])
    note = GroupNote.read(group)
    is_group = (note.current or note.staged) is not None and not _is_view(group or b"")
    if is_group or join is not None:
        raise DefinitionError(
            f"{view.kind} {view.name}: a {'group' if is_group else 'join'} {view.name!r} is served "
            f"in {records.address} already; what is fetched by this name would be one or the "
            "other. Choose another name"
        )


def withdraw(records: RecordStore, name: str) -> None:
    """Serve a view no more, and remove its records."""

    def retired(note: GroupNote) -> GroupNote:
        return GroupNote(None, None, (*note.retired, *note.numbers), note.swept)

    (raw,), _ = records.read([note_name(name)], [])
    if raw is None or not _is_view(raw):
        return
    change_note(records, name, retired)
    sweep(records, name)
    records.change_note(note_name(name), lambda _: None)
