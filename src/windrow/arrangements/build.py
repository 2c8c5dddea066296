"""Building and extending an arrangement: the pending steps, an append each.

Rows are appended at the time at which they are ingested. An interrupted run resumes after the last
finished step; if another process extends the same arrangement, the second one plans again what is
left to do. Readers hold an arrangement: what others do to it meanwhile neither changes nor removes
what is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from windrow.arrangements.content import FILE, Content
from windrow.arrangements.find import REBUILT, Todo, find, lost_files
from windrow.arrangements.manifest import Manifest, Step, Take, read_all
from windrow.arrangements.retract import BothRows, RetractedRows
from windrow.errors import (
    ShardExistsError,
    ShardNotFoundError,
    ShardRetiredError,
    UpperMismatchError,
)
from windrow.shard.append import TaskRows
from windrow.shard.shard import Shard
from windrow.sources.pieces import Piece
from windrow.spark.settings import union
from windrow.spark.stages import Stages
from windrow.storage.store import Store
from windrow.time import now_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS = 128  # of about one size, that an arrangement may have before they are merged
RETRACTED = 1 / 8  # of an arrangement's rows: with more retractions than that, they are compacted
ATTEMPTS = 20  # at extending an arrangement while other processes extend it too

Reject = Callable[[Piece, str], None]  # stores the rows of a piece that have no time, by a name


class Narrowing(Protocol):
    """Which rows of a step are kept, of those that tasks read and of those that Spark reads."""

    def over(self, rows: TaskRows) -> TaskRows: ...
    def frame(self, frame: DataFrame) -> DataFrame: ...


@dataclass(frozen=True)
class Builder:
    """Carries out the steps of arrangements, for `reader`.

    `reject` is given the pieces that are read.
    """

    stages: Stages
    reject: Reject
    reader: str = "a run"

    def build(
        self, content: Content, todo: Todo, rows: int | None, work: Store, holds: ExitStack
    ) -> tuple[Shard, Todo]:
        """The arrangement, with all pending inputs ingested; and how that was done.

        The shard stays as it is then, whatever others append: it is held until `holds` closes.
        What was done is `todo`, unless another process was first. `rows` is about how many are
        ingested; an arrangement for this run only is stored beneath `work`.
        """
        if todo.uri is None:
            shard = self.open(f"{work.uri}/{content.name}", content)
            self._ingest(content, todo, shard, rows)
            return shard.pin(), todo
        for left in reversed(range(ATTEMPTS)):
            with ExitStack() as attempt:
                try:
                    assert todo.uri is not None
                    shard = self._extend(content, todo, rows, attempt)
                    holds.push(attempt.pop_all())
                    return shard, todo
                except (UpperMismatchError, ShardRetiredError):
                    if not left:
                        raise
            todo = find(content, self.stages.store)  # another process was first
        raise AssertionError

    def _extend(self, content: Content, todo: Todo, rows: int | None, holds: ExitStack) -> Shard:
        """The arrangement, held from before the first step that is to be done."""
        assert todo.uri is not None
        shard = self.open(todo.uri, content)
        held = holds.enter_context(shard.hold(reader=self.reader))
        if todo.pending:
            self._ingest(content, todo, shard, rows)
            held.advance(max(shard.upper - 1, held.time))
        if not todo.manifest.is_done(shard):
            raise UpperMismatchError(
                f"{shard.uri}: another process extended the arrangement", upper=shard.upper
            )
        shard.pin()
        if not todo.pending:
            return shard
        self._compact(content, todo.uri)
        todo.manifest.sweep(Store.at(shard.uri, self.stages.store.options_dict), shard)
        sweep(todo, content, self.stages.store)
        compacted = self.open(todo.uri, content)
        return compacted.pin() if todo.manifest.is_done(compacted) else shard

    def open(self, uri: str, content: Content) -> Shard:
        """The shard of an arrangement, new or as it is."""
        options = self.stages.store.options_dict
        try:
            return Shard.open(uri, storage_options=options)
        except ShardNotFoundError:
            pass
        try:
            return Shard.create(
                uri,
                content.stored_schema,
                key=content.key,
                order=content.order,
                storage_options=options,
            )
        except ShardExistsError:  # another process was first
            return Shard.open(uri, storage_options=options)

    def _ingest(self, content: Content, todo: Todo, shard: Shard, rows: int | None) -> None:
        manifest = todo.manifest
        manifest.write(Store.at(shard.uri, self.stages.store.options_dict))
        with self.stages.stage(f"arrange {content.title}", rows):
            for number in range(todo.done, len(manifest.steps)):
                mark = manifest.mark(number)
                if shard.marked(mark) is not None:
                    continue  # an interrupted run of the same
                self.append(content, manifest.steps[number], shard, mark)

    def append(
        self,
        content: Content,
        step: Step,
        shard: Shard,
        mark: str,
        narrow: Narrowing | None = None,
    ) -> None:
        """Append the rows of a step; with `narrow`, those of them that it lets pass."""
        pieces = [self._piece(content, take) for take in step.takes]
        for take, piece in zip(step.takes, pieces, strict=True):
            if take.back is None:
                self.reject(piece, f"{content.name}-{mark}-{take.piece}")
        numbers = step.numbers()
        at = max(now_millis(), shard.upper)
        bounds = {"lower": shard.upper, "upper": at + 1, "at": at}
        if all(piece.rows is not None for piece in pieces) and len(pieces) <= 1:
            rows = self._task_rows(step, pieces, numbers, shard)
            if rows is None:
                empty = shard.schema.empty_table()
                shard.append(empty, token=mark, mark=mark, **bounds)
            else:
                rows = rows if narrow is None else narrow.over(rows)
                shard.append_tasks(self.stages.given, rows, token=mark, mark=mark, **bounds)
        else:
            frames = [
                _numbered(piece.frame(take.back), step.first)
                for piece, take in zip(pieces, step.takes, strict=True)
            ]
            frame = union(frames, self.stages.spark)
            frame = frame if narrow is None else narrow.frame(frame)
            exchanged = any(piece.exchanged for piece in pieces)
            tasks = 2 * self.stages.engine.tasks if exchanged else None
            shard.append(frame, token=mark, mark=mark, exchange=tasks, **bounds)
        read = shard.appended.get("rows", 0)
        if narrow is not None:  # of rows that Spark reads, only those that remain are counted
            footers = [piece.table.parquet for piece in pieces]
            read = max(read, sum(parquet.rows for parquet in footers if parquet is not None))
        self.stages.add("raw_rows", read)
        self.stages.add("peak_memory", shard.appended.get("peak_memory", 0))

    def _piece(self, content: Content, take: Take) -> Piece:
        piece = content.pieces[take.piece]
        if take.uris is not None:
            piece = piece.only(take.uris, self.stages.engine)
        return piece if take.span is None else piece.during(take.span, self.stages.engine)

    def _task_rows(
        self,
        step: Step,
        pieces: Sequence[Piece],
        numbers: dict[tuple[int, str], int],
        shard: Shard,
    ) -> TaskRows | None:
        """The rows that tasks read by themselves: of files, and those to retract."""
        found: list[TaskRows] = []
        for piece in pieces:
            assert piece.rows is not None
            files = {uri: number for (_, uri), number in numbers.items()}
            found.append(replace(piece.rows, constant=(FILE, files)))
        if step.retracts and shard.upper:
            found.append(RetractedRows.of(shard, step.retracts, self.stages.engine.tasks))
        return functools.reduce(BothRows, found) if found else None

    def _compact(self, content: Content, uri: str) -> None:
        """Merge runs once there are many, and drop rows that were retracted once they are many."""
        shard = self.open(uri, content)
        stats = shard.stats()
        title = f"compact {content.title}"
        newest = shard.upper - 1
        if not content.retracts and stats.retractions > RETRACTED * stats.rows:
            # As long as somebody reads an earlier time, retractions remain.
            if shard.advance_since(newest) == newest:
                with self.stages.stage(title, stats.rows):
                    shard.compact(everything=True, spark=self.stages.spark)
                    shard.vacuum()
        elif shard.is_untidy(fanout=RUNS):
            with self.stages.stage(title, stats.rows):
                shard.compact(fanout=RUNS, spark=self.stages.spark)
                shard.vacuum()


def _numbered(frame: DataFrame, number: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return frame.withColumn(FILE, F.lit(number).cast("int"))


def sweep(todo: Todo, content: Content, root: Store) -> None:
    """Remove other generations of an arrangement that are of no use beside it, and not in use."""
    assert todo.uri is not None
    parent, _, kept = todo.uri.rpartition("/")
    options = root.options_dict
    for generation in Store.at(parent, options).folders():
        store = Store.at(f"{parent}/{generation}", options)
        if generation != kept and _is_removable(store, todo.manifest, content):
            Store.at(f"{root.uri}/tiles/{content.id}/{generation}", options).remove()
            store.remove()


def _is_removable(store: Store, beside: Manifest, content: Content) -> bool:
    try:
        shard = Shard.open(store.uri, storage_options=store.options_dict)
    except ShardNotFoundError:
        return bool(store.names())  # what is left of one that was being removed
    return shard.retired or (_is_useless(store, beside, content) and shard.retire())


def _is_useless(store: Store, beside: Manifest, content: Content) -> bool:
    last = max(read_all(store), key=lambda m: m.next_number, default=None)
    if last is None:
        return False
    lost = lost_files(last.files, store.options_dict)
    if sum(f.bytes for f in lost) > REBUILT * sum(f.bytes for f in last.files):
        return True
    if content.dated and lost:
        return True
    if content.dated or all(p.rows is not None or p.shard for p in content.pieces):
        # Whatever it has is in the other, and can be told apart there.
        return last.files.keys() - lost <= beside.files.keys()
    return False
