"""Following shards: what was taken in since goes into the records that it touches.

For each generation, and each source that is a shard, there is a *span* of its times that the
records do not have yet. Its end is noted before the span is applied: a follower that is
interrupted, or that meets another one, applies the same span again, and records that have it leave
it out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow.errors import TimeRangeError
from windrow.features.definitions import GroupBy
from windrow.features.inputs.groups import GroupInputs
from windrow.online.folding import Batch, Folding
from windrow.online.generations import Generation, change_note, read_note, sweep
from windrow.online.keys import key_bytes, prefix
from windrow.online.served import ServedGroup
from windrow.online.stores.store import RecordStore
from windrow.online.upload import serve_group
from windrow.sources.pieces import Piece
from windrow.sources.spans import SpanRows
from windrow.spark.session import Engine
from windrow.spark.tasks import Written, run_numbered, run_writers
from windrow.storage.store import Store
from windrow.time import now_millis
from windrow.updates import DIFF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOGETHER = 200_000  # rows that one task applies


@dataclass(frozen=True)
class Followed:
    """What was applied to the records of a group."""

    group: str
    rows: int
    keys: int
    seconds: float


class Follower:
    """Keeps the records of some groups up to the shards of their sources.

    Groups are as they are bound: their streams and views are resolved to shards.
    """

    def __init__(
        self, engine: Engine, root: Store, records: RecordStore, groups: Sequence[GroupBy]
    ) -> None:
        self._engine, self._root, self._records = engine, root, records
        self._groups = {group.name: group for group in groups}
        self._bound: dict[str, GroupInputs] = {}
        self._told: set[int] = set()  # generations of other definitions

    def follow(self, source: str | None = None) -> list[Followed]:
        """Apply what is new in all sources, or in one by name; returns what changed."""
        found = []
        for group in self._groups.values():
            if source is None or source in {one.name for one in group.sources}:
                followed = self._follow(group, source)
                if followed is not None:
                    found.append(followed)
        return found

    def _follow(self, group: GroupBy, only: str | None) -> Followed | None:
        started = time.perf_counter()
        rows = keys = 0
        note = read_note(self._records, group.name)
        generations = [one for one in (note.current, note.staged) if one and one.loaded]
        if not generations:
            return None
        inputs = self._inputs(group)
        for generation in generations:
            if not self._is_defined_so(group, inputs, generation):
                continue
            for number, piece in self._shards(inputs):
                if only is None or piece.source.name == only:
                    applied = self._apply(generation, number, piece)
                    rows += applied.get("rows", 0)
                    keys += applied.get("keys", 0)
        note = change_note(self._records, group.name, lambda one: one.promoted())
        if note.retired:
            sweep(self._records, group.name)
        return Followed(group.name, rows, keys, time.perf_counter() - started)

    def _inputs(self, group: GroupBy) -> GroupInputs:
        """The group bound to its tables; again, as long as a stream has no shard."""
        found = self._bound.get(group.name)
        if found is None or any(_is_waiting(piece) for piece in found.content.pieces):
            found = GroupInputs.bind(group, self._engine, self._root.options_dict)
            self._bound[group.name] = found
        return found

    def _is_defined_so(self, group: GroupBy, inputs: GroupInputs, generation: Generation) -> bool:
        """Whether a generation is of this definition; of another one it stays as it is."""
        if serve_group(group, inputs).digest == generation.served.digest:
            return True
        if generation.number not in self._told:
            self._told.add(generation.number)
            warnings.warn(
                f"GroupBy {group.name!r} is served as it was defined before, and takes nothing in; "
                f"`windrow upload {group.name}` serves the new definition",
                stacklevel=4,
            )
        return False

    def _shards(self, inputs: GroupInputs) -> Iterator[tuple[int, Piece]]:
        """The pieces that are shards, each with the number of its source."""
        names = [source.name for source in inputs.group.sources]
        for piece in inputs.content.pieces:
            if piece.shard is not None:
                yield names.index(piece.source.name), piece

    def _apply(self, generation: Generation, source: int, piece: Piece) -> dict[str, int]:
        """Bring all records of a generation up to the shard, as far as it is known now."""
        name, shard = generation.served.name, piece.shard
        assert shard is not None
        upper = shard.refresh().upper
        lower = generation.positions[source]
        done: dict[str, int] = {}
        if generation.destination(source) is None and lower < upper:
            note = change_note(
                self._records,
                name,
                lambda note: note.changed(
                    generation.number, lambda one: one.bound_for(source, upper)
                ),
            )
            known = [one for one in (note.current, note.staged) if one is not None]
            generation = next((o for o in known if o.number == generation.number), generation)
        target = generation.destination(source)
        if target is not None and lower < target:
            # Records that never took anything in can begin wherever the shard does.
            start = max(lower, shard.since)
            if lower and lower < start:
                raise TimeRangeError(
                    f"{shard.uri}: what it took in before {shard.since} is forgotten, and the "
                    f"records of {name} are at {lower}; run `windrow upload {name}`"
                )
            done = self._run(generation, source, piece, (start, target)) if start < target else {}
        reached, now = max(target or lower, lower), now_millis()
        note = change_note(
            self._records,
            name,
            lambda note: note.changed(
                generation.number, lambda one: one.advanced(source, reached, now)
            ),
        )
        if done and generation.number not in note.numbers:  # another took its place meanwhile
            self._records.remove(prefix(generation.number))
        return done

    def _run(
        self, generation: Generation, source: int, piece: Piece, span: tuple[int, int]
    ) -> dict[str, int]:
        assert piece.shard is not None
        parts = [p for p in piece.shard.parts() if p.time[1] >= span[0] and p.time[0] < span[1]]
        rows = sum(part.rows for part in parts)
        names = tuple(column.name for column in piece.columns)
        apply = _Application(generation, source, span[1], self._records, names)
        read = SpanRows.of(piece, span) if rows <= _TOGETHER else None
        if read is not None:
            written = run_numbered(
                self._engine.given, 1, self._root, lambda _: apply(read.batches())
            )
        else:
            frame = piece.during(span, self._engine).frame()
            frame = self._partitioned(frame, rows, len(names))
            written = run_writers(frame, self._root, apply)
        return dict(written.counters)

    def _partitioned(self, frame: DataFrame, rows: int, columns: int) -> DataFrame:
        """One task for few rows; otherwise all rows of a key in one of several."""
        frame = frame.toDF(*(f"c{i}" for i in range(columns)))  # mapInArrow takes no dots in names
        if rows <= _TOGETHER:
            return frame.coalesce(1)
        return frame.repartition(self._engine.tasks, "c0")


def _is_waiting(piece: Piece) -> bool:
    return getattr(piece, "streamed", False) and piece.shard is None


@dataclass(frozen=True)
class _Application:
    """In a task: applies rows to the records of their keys. Picklable."""

    generation: Generation
    source: int
    upper: int
    records: RecordStore
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Written:
        held = [batch.rename_columns(self.names) for batch in batches]
        if not held:
            return Written([])
        table = pa.Table.from_batches(held).combine_chunks()
        generation = self.generation
        served = generation.served
        assert isinstance(served, ServedGroup)
        wanted = [n for n in (*served.layout.schema.names, DIFF) if n in table.column_names]
        batch = Batch.of(served, table.select(wanted))
        if not batch.keys.num_rows:
            return Written([], 0, {"rows": table.num_rows})
        folding = Folding(
            served, batch, generation.sealed, generation.positions, self.source, self.upper
        )
        self.records.update(key_bytes(generation.number, batch.keys), folding)
        return Written([], 0, {"rows": table.num_rows, "keys": batch.keys.num_rows})
