"""Arrangements at rest: which are there, which files they hold, and what is still to be done.

    arrangements/NAME/GENERATION/                 a shard
    arrangements/NAME/GENERATION/_manifests/      a manifest for each set of files taken in

NAME says what an arrangement holds. A *manifest* lists the files that are in it, with what changes
when one is written anew, and the shard's time at which its rows are. Rows are taken in step by
step, an append each, which carries the manifest's digest as its mark: so it is known, whatever
happened, which files are in.

- All files are the same: the arrangement is used as it is.
- New files came: they are taken in, nothing else is read.
- A file changed or went: rows at its time are left out from now on, and what it holds now is
  taken in like a new file.
- Most of it has changed or gone: the arrangement is built anew, as another generation.
- A new snapshot came: it is taken in, and the one before it is read once more, to be taken back.
- A run was interrupted: it goes on after the last finished step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from windrow.errors import ShardNotFoundError, StorageError
from windrow.features.inputs.groups import GroupInputs
from windrow.shard.shard import Shard
from windrow.storage.names import digest
from windrow.storage.store import Store

STEP_ROWS = 64_000_000  # rows of files that one append takes in; an interrupted run repeats one
LEFT_OUT = 0.5  # of an arrangement's bytes: with more than that left out, it is built anew
_MANIFESTS = "_manifests"


class PieceFile(NamedTuple):
    """A file of a piece; its stamp changes when it is written anew."""

    piece: int
    uri: str
    stamp: str

    @property
    def bytes(self) -> int:
        return int(self.stamp.split()[0])


@dataclass(frozen=True)
class Take:
    """What a step takes of a piece: some files, or (`uris` None) all of it.

    With `back`, a snapshot's moment: not the rows, but what later snapshots take back of those
    that were there after it.
    """

    piece: int
    uris: tuple[str, ...] | None
    back: int | None = None


@dataclass(frozen=True)
class Step:
    """One append, of [lower, upper).

    The rows of each file are at a time of their own, in the order of `uris`; or, if the step has
    one time only, all of them are at that.
    """

    takes: tuple[Take, ...]
    lower: int
    upper: int

    def times(self) -> dict[str, int] | None:
        """The time of each file; None if they share one."""
        if self.upper == self.lower + 1:
            return None
        (take,) = self.takes
        return {uri: self.lower + n for n, uri in enumerate(take.uris or ())}


@dataclass(frozen=True)
class Manifest:
    """The files that an arrangement holds after `steps`, and the time of each.

    Rows at the times `dead` are left out. `moments` are those of snapshots.
    """

    files: Mapping[PieceFile, int]
    steps: tuple[Step, ...]
    base: int = 0
    dead: tuple[int, ...] = ()
    dead_bytes: int = 0
    moments: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        return digest(self._text())

    @property
    def upper(self) -> int:
        return max((step.upper for step in self.steps), default=self.base)

    def done(self, upper: int) -> int:
        """How many of the steps are done in a shard with this upper."""
        return sum(step.upper <= upper for step in self.steps)

    def _text(self) -> str:
        return json.dumps(
            {
                "files": sorted([*file, time] for file, time in self.files.items()),
                "steps": [asdict(step) for step in self.steps],
                "base": self.base,
                "dead": self.dead,
                "dead_bytes": self.dead_bytes,
                "moments": self.moments,
            }
        )

    def write(self, store: Store) -> None:
        folder = Store.at(f"{store.uri}/{_MANIFESTS}", store.options_dict)
        with folder.open_output(f"{self.digest}.json") as out:
            out.write(self._text().encode())

    @staticmethod
    def read_all(store: Store) -> Iterator[Manifest]:
        folder = Store.at(f"{store.uri}/{_MANIFESTS}", store.options_dict)
        for name in folder.names():
            try:
                yield _manifest_of(json.loads(folder.open_input(name).read()))
            except (ValueError, KeyError, TypeError, StorageError):
                continue  # half written by a process that died: no append carries its digest


def _manifest_of(found: dict[str, Any]) -> Manifest:
    def take(one: dict[str, Any]) -> Take:
        uris = None if one["uris"] is None else tuple(one["uris"])
        return Take(one["piece"], uris, one["back"])

    return Manifest(
        {PieceFile(piece, uri, stamp): time for piece, uri, stamp, time in found["files"]},
        tuple(
            Step(tuple(take(one) for one in step["takes"]), step["lower"], step["upper"])
            for step in found["steps"]
        ),
        found["base"],
        tuple(found["dead"]),
        found["dead_bytes"],
        tuple(found["moments"]),
    )


@dataclass(frozen=True)
class Todo:
    """What is to be done to an arrangement: the steps of `manifest` after the first `done`.

    `uri` None is an arrangement for one backfill only. `rows` are those that are there; those at
    the times `without` are of files that have changed, gone, or are not asked for.
    """

    uri: str | None
    manifest: Manifest
    done: int
    rows: int
    reason: str
    hottest: int = 0  # rows of the largest key, as far as they fill row groups
    without: tuple[int, ...] = ()

    @property
    def action(self) -> str:
        if self.done == len(self.manifest.steps):
            return "use"
        return "extend" if self.rows or self.done else "build"

    @property
    def pending(self) -> tuple[Step, ...]:
        return self.manifest.steps[self.done :]

    @property
    def takes(self) -> tuple[Take, ...]:
        """What the pending steps take."""
        return tuple(take for step in self.pending for take in step.takes)


def files_of(inputs: GroupInputs) -> frozenset[PieceFile] | None:
    """All files with their stamps; None if a piece is not files."""
    found = []
    for number, piece in enumerate(inputs.pieces):
        stamps = piece.table.stamps()
        if stamps is None:
            return None
        found += [PieceFile(number, uri, stamp) for uri, stamp in stamps.items()]
    return frozenset(found)


def find(inputs: GroupInputs, store: Store) -> Todo:
    """What has to be done for the arrangement of `inputs`, given what is there."""
    files = files_of(inputs)
    if files is None:
        why = "a change behind a name would not be noticed, so it is built each time"
        return Todo(None, Manifest({}, whole(inputs)), 0, 0, why)
    folder = Store.at(f"{store.uri}/arrangements/{inputs.name}", store.options_dict)
    generations = folder.folders()
    usable = [c for g in generations if (c := _candidate(folder, g, inputs, files)) is not None]
    if usable:
        return min(usable, key=lambda t: (sum(len(x.uris or ()) for x in t.takes), t.rows))
    manifest = _extension(inputs, Manifest({}, ()), files)
    why = "most of its files have changed or gone" if generations else "not there yet"
    if generations and _snapshots(inputs):
        why = "a snapshot or a mutation has changed, gone, or come late"
    return Todo(f"{folder.uri}/{manifest.digest}", manifest, 0, 0, why)


def _snapshots(inputs: GroupInputs) -> set[int]:
    """The pieces of which each snapshot takes back what came before."""
    return {number for number, piece in enumerate(inputs.pieces) if piece.replaced}


def _candidate(
    folder: Store, generation: str, inputs: GroupInputs, files: frozenset[PieceFile]
) -> Todo | None:
    """What has to be done to a generation so that it holds `files`; None if it cannot be used."""
    store = Store.at(f"{folder.uri}/{generation}", folder.options_dict)
    try:
        shard = Shard.open(store.uri, storage_options=store.options_dict)
    except ShardNotFoundError:
        return None
    known = (m for m in Manifest.read_all(store) if shard.marked(m.digest) == shard.upper)
    current = Manifest({}, ()) if shard.upper == 0 else next(known, None)
    if current is None:
        return None
    stats = shard.stats()
    asked = AskedFiles(inputs, files, store.options_dict)
    todo = asked.unchanged(current, stats.upper) or asked.extended(current, stats.upper)
    if todo is None:
        return None
    return replace(
        todo, uri=store.uri, rows=stats.rows, hottest=max(shard.hot_prefixes().values(), default=0)
    )


@dataclass(frozen=True)
class AskedFiles:
    """The files that an arrangement is asked to hold, and how one comes to hold them."""

    inputs: GroupInputs
    files: frozenset[PieceFile]
    options: dict[str, str] | None

    def unchanged(self, current: Manifest, upper: int) -> Todo | None:
        """Go on with the manifest as it is, if it holds all files, or will do so."""
        pending = {file for file, time in current.files.items() if time >= upper}
        if not current.steps or not pending <= self.files <= current.files.keys():
            return None
        without = self._left_out(current.files)
        if without is None:
            return None
        done = current.done(upper)
        finished = done == len(current.steps)
        why = "its files have not changed" if finished else "interrupted before"
        return Todo(None, current, done, 0, why, without=tuple(sorted({*current.dead, *without})))

    def extended(self, current: Manifest, upper: int) -> Todo | None:
        """Take in what is new, and leave out for good what has changed or gone."""
        there = {file: time for file, time in current.files.items() if time < upper}
        lost = {file for file in there.keys() - self.files if _is_lost(file, self.options)}
        if _snapshots(self.inputs):
            half_done = current.done(upper) < len(current.steps)  # of which moments, nobody knows
            if lost or half_done or not _follows(self.inputs.snapshots, current.moments):
                return None
        dead = {there[file] for file in lost}
        gone = [file for file, time in there.items() if time in dead]  # files may share a time
        kept = {file: time for file, time in there.items() if time not in dead}
        without = self._left_out(kept)
        dead_bytes = current.dead_bytes + sum(file.bytes for file in gone)
        if without is None or dead_bytes > LEFT_OUT * sum(file.bytes for file in self.files):
            return None
        times = tuple(sorted({*current.dead, *dead}))
        start = Manifest(kept, (), upper, times, dead_bytes, current.moments)
        manifest = _extension(self.inputs, start, self.files)
        why = self._reason(there, lost) if upper else "interrupted before"
        return Todo(None, manifest, 0, 0, why, without=tuple(sorted({*times, *without})))

    def _left_out(self, there: Mapping[PieceFile, int]) -> set[int] | None:
        """The times of files that are there but not asked for; None if others share them."""
        without = {time for file, time in there.items() if file not in self.files}
        shared = any(time in without for file, time in there.items() if file in self.files)
        return None if shared or (without and _snapshots(self.inputs)) else without

    def _reason(self, there: Mapping[PieceFile, int], lost: set[PieceFile]) -> str:
        changed = {(file.piece, file.uri) for file in lost}
        added = [f for f in self.files - there.keys() if (f.piece, f.uri) not in changed]
        counts = [(len(added), "new file"), (len(lost), "file that has changed or gone")]
        texts = [f"{n} {text if n == 1 else _plural(text)}" for n, text in counts if n]
        return " and ".join(texts) or "interrupted before"


def _plural(text: str) -> str:
    return text.replace("file", "files").replace("has", "have")


def _follows(moments: tuple[int, ...], earlier: tuple[int, ...]) -> bool:
    """Whether `moments` are those of earlier, and later ones."""
    return moments[: len(earlier)] == earlier


def _extension(inputs: GroupInputs, kept: Manifest, files: frozenset[PieceFile]) -> Manifest:
    """`kept` and the steps that take in all of `files` that it does not hold."""
    added = files - kept.files.keys()
    snapshots = _snapshots(inputs)
    times = dict(kept.files)
    steps: list[Step] = []
    lower = kept.base
    for takes in _batches(inputs, added):
        (take,) = takes
        piece = inputs.pieces[take.piece]
        apart = piece.rows is not None and take.uris is not None
        upper = lower + (len(take.uris or ()) if apart else 1)
        steps.append(Step(takes, lower, upper))
        lower = upper
    replaced = [t for n in sorted(snapshots) for t in _replaced(inputs, n, kept, added)]
    if replaced:
        steps.append(Step(tuple(replaced), lower, lower + 1))
    if not steps:  # files went, or there are none: it is noted all the same
        steps.append(Step((), lower, lower + 1))
    stamped = {(file.piece, file.uri): file for file in added}
    for step in steps:
        own = step.times()
        for one in step.takes:
            for uri in one.uris or () if one.back is None else ():
                times[stamped[one.piece, uri]] = step.lower if own is None else own[uri]
    return Manifest(times, tuple(steps), kept.base, kept.dead, kept.dead_bytes, inputs.snapshots)


def _batches(inputs: GroupInputs, files: Iterable[PieceFile]) -> Iterator[tuple[Take, ...]]:
    """The files of pieces without snapshots, as much at a time as an append should hold."""
    wanted = {(file.piece, file.uri) for file in files}
    for number, piece in enumerate(inputs.pieces):
        uris = [uri for uri in piece.table.uris or () if (number, uri) in wanted]
        if piece.replaced or not uris:
            continue
        if piece.rows is None or piece.table.parquet is None:
            yield (Take(number, tuple(uris)),)
            continue
        sizes = {file.uri: file.rows for file in piece.table.parquet.files}
        held: list[str] = []
        rows = 0
        for uri in uris:
            if held and rows + sizes[uri] > STEP_ROWS:
                yield (Take(number, tuple(held)),)
                held, rows = [], 0
            held.append(uri)
            rows += sizes[uri]
        yield (Take(number, tuple(held)),)


def _replaced(
    inputs: GroupInputs, number: int, kept: Manifest, added: Iterable[PieceFile]
) -> Iterator[Take]:
    """New files of a piece with snapshots, and what new snapshots take back of the others."""
    new = {file.uri for file in added if file.piece == number}
    piece = inputs.pieces[number]
    uris = tuple(uri for uri in piece.table.uris or () if uri in new)
    if uris:
        yield Take(number, uris)
    if kept.moments and inputs.snapshots != kept.moments:
        last = kept.moments[-1]
        old = {file.uri for file in kept.files if file.piece == number}
        back = tuple(uri for uri in piece.recent(last) if uri in old)
        if back:
            yield Take(number, back, last)


def whole(inputs: GroupInputs) -> tuple[Step, ...]:
    """Everything, for one backfill only."""
    snapshots = sorted(_snapshots(inputs))
    numbers = range(len(inputs.pieces))
    takes: list[tuple[Take, ...]] = [(Take(n, None),) for n in numbers if n not in snapshots]
    if snapshots:
        takes.append(tuple(Take(n, None) for n in snapshots))
    return tuple(Step(several, lower, lower + 1) for lower, several in enumerate(takes))


def sweep(todo: Todo, inputs: GroupInputs, root: Store) -> None:
    """Remove other generations of an arrangement that are of no use beside it."""
    assert todo.uri is not None
    parent, _, kept = todo.uri.rpartition("/")
    name, options = parent.rpartition("/")[2], root.options_dict
    for generation in Store.at(parent, options).folders():
        store = Store.at(f"{parent}/{generation}", options)
        last = max(Manifest.read_all(store), key=lambda m: m.upper, default=None)
        if generation == kept or last is None:
            continue
        lost = {file for file in last.files if _is_lost(file, options)}
        dead_bytes = last.dead_bytes + sum(file.bytes for file in lost)
        useless = dead_bytes > LEFT_OUT * sum(file.bytes for file in last.files)
        if _snapshots(inputs) and lost:
            useless = True
        if _snapshots(inputs) or all(piece.rows is not None for piece in inputs.pieces):
            # Whatever it has is in the other, and can be told apart there.
            useless |= last.files.keys() - lost <= todo.manifest.files.keys()
        if useless:
            Store.at(f"{root.uri}/tiles/{name}/{generation}", options).remove()
            store.remove()


def _is_lost(file: PieceFile, options: dict[str, str] | None) -> bool:
    store, name = Store.of_file(file.uri, options)
    return store.stamp(name) != file.stamp
