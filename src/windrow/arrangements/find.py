"""Finding an arrangement: what is stored, and the steps that bring it up to date.

    arrangements/ID/GENERATION/                 a shard, named by its content
    arrangements/ID/GENERATION/_manifests/      which inputs it has ingested

- All inputs are the same: the arrangement is used as it is.
- There are new files, or new updates of a shard: they are ingested, nothing else is read.
- A file was rewritten or removed: the rows that it held are retracted, and what it holds now is
  ingested, in the same append where tasks read the files.
- Most of it was rewritten or removed: it is rebuilt, as another generation.
- There is a new snapshot: it is ingested, and the one before it is read once more, to be retracted.
- A run was interrupted: it resumes after the last finished step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.arrangements.content import FILE, UNTRACKED, Content
from windrow.arrangements.manifest import InputFile, Manifest, Step, Take
from windrow.errors import ShardNotFoundError
from windrow.shard.part import Part
from windrow.shard.predicate import Predicate, col
from windrow.shard.shard import Shard
from windrow.storage.names import digest
from windrow.storage.store import Store

STEP_ROWS = 64_000_000  # rows of files that one append ingests; an interrupted run repeats one
REBUILT = 0.5  # of an arrangement's bytes: with more than that rewritten or removed, it is rebuilt


@dataclass(frozen=True)
class Todo:
    """What is to be done to an arrangement: the steps of `manifest` after the first `done`.

    `uri` None is an arrangement for one run only. `rows` are those that are stored. With
    `chosen`, only rows of the inputs with these numbers are read.
    """

    uri: str | None
    manifest: Manifest
    done: int
    rows: int
    reason: str
    chosen: tuple[int, ...] | None = None
    large: Mapping[int, int] = field(default_factory=dict)  # prefixes of large keys, and their rows
    parts: tuple[Part, ...] = field(default=(), repr=False)  # those that are stored and read

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

    @property
    def hottest(self) -> int:
        """Rows of the largest key, as far as they fill row groups."""
        return max(self.large.values(), default=0)

    @property
    def state(self) -> list[Any]:
        """The same as long as the arrangement holds the same rows."""
        manifest = self.manifest
        return [sorted(manifest.files), sorted(manifest.shards.items())]


@dataclass(frozen=True)
class Inputs:
    """The inputs that an arrangement of `content` is to hold, as they are now."""

    content: Content
    files: frozenset[InputFile]
    shards: Mapping[int, tuple[int, int]]  # since and upper of each shard, by its piece

    @staticmethod
    def of(content: Content) -> Inputs | None:
        """None if a piece is neither files nor a shard: nobody could tell that it changed."""
        files: list[InputFile] = []
        shards: dict[int, tuple[int, int]] = {}
        for number, piece in enumerate(content.pieces):
            if piece.shard is not None:
                shards[number] = (piece.shard.since, piece.shard.upper)
                continue
            stamps = piece.table.stamps()
            if stamps is None:
                return None
            files += [InputFile(number, uri, stamp) for uri, stamp in stamps.items()]
        return Inputs(content, frozenset(files), shards)

    @property
    def frontiers(self) -> dict[int, int]:
        return {number: upper for number, (_, upper) in self.shards.items()}


def find(content: Content, root: Store) -> Todo:
    """What has to be done for the arrangement of `content` beneath `root`, given what is stored."""
    inputs = Inputs.of(content)
    if inputs is None:
        why = "a change behind a name would not be noticed, so it is built each time"
        return Todo(None, Manifest(steps=whole(content)), 0, 0, why)
    folder = Store.at(f"{root.uri}/arrangements/{content.id}", root.options_dict)
    generations = folder.folders()
    usable = [t for g in generations if (t := _candidate(folder, g, inputs)) is not None]
    if usable:
        return min(usable, key=lambda t: (sum(len(x.uris or ()) for x in t.takes), t.rows))
    manifest = _extended(inputs, Manifest(), frozenset())
    why = "most of its files were rewritten or removed" if generations else "not there yet"
    if generations and content.dated:
        why = "a snapshot or a mutation was rewritten, removed, or is late"
    if generations and inputs.shards:
        why = "the shard has forgotten what has changed since"
    # Files may be as they were when an earlier generation was built, which was extended since.
    name = manifest.digest
    while name in generations:
        name = digest(name)
    return Todo(f"{folder.uri}/{name}", manifest, 0, 0, why)


def _candidate(folder: Store, generation: str, inputs: Inputs) -> Todo | None:
    """What has to be done to a generation so that it holds `inputs`; None if it is of no use."""
    store = Store.at(f"{folder.uri}/{generation}", folder.options_dict)
    try:
        shard = Shard.open(store.uri, storage_options=store.options_dict)
    except ShardNotFoundError:
        return None
    current = None if shard.retired else Manifest.current(store, shard)
    if current is None:
        return None
    todo = _unchanged(inputs, current, shard, store) or _extension(inputs, current, shard, store)
    if todo is None:
        return None
    parts = shard.parts()
    if todo.chosen is not None:
        scan = shard.snapshot(where=_of_files(todo.chosen)).scan
        parts = [part for part in parts if scan.may_hold(part)]
    return replace(
        todo,
        uri=store.uri,
        rows=shard.stats().rows,
        large=shard.hot_prefixes(),
        parts=tuple(parts),
    )


def as_it_is(shard: Shard, reason: str) -> Todo:
    """A shard that is read as it is: nothing has to be done."""
    return Todo(
        shard.uri,
        Manifest(shards={0: shard.upper}),
        0,
        shard.stats().rows,
        reason,
        large=shard.hot_prefixes(),
        parts=tuple(shard.parts()),
    )


def _of_files(numbers: tuple[int, ...]) -> Predicate:
    return col(FILE).is_in(list(numbers))


def _unchanged(inputs: Inputs, current: Manifest, shard: Shard, store: Store) -> Todo | None:
    """Keep the manifest as it is, if it holds all inputs or will do so, and none that is lost."""
    done = current.done(shard)
    pending = {n for step in current.steps[done:] for n in step.numbers().values()}
    later = {file for file, number in current.files.items() if number in pending}
    if not current.steps or not later <= inputs.files <= current.files.keys():
        return None
    if inputs.frontiers != dict(current.shards):
        return None
    chosen, possible = _chosen(inputs, current.files)
    if not possible or lost_files(current.files.keys() - inputs.files, store.options_dict):
        return None
    finished = done == len(current.steps)
    why = "its inputs have not changed" if finished else "interrupted before"
    return Todo(None, current, done, 0, why, chosen=chosen)


def _extension(inputs: Inputs, current: Manifest, shard: Shard, store: Store) -> Todo | None:
    """Ingest what is new, and retract what was rewritten or removed."""
    done = current.done(shard)
    pending = {n for step in current.steps[done:] for n in step.numbers().values()}
    there = {file: n for file, n in current.files.items() if n not in pending}
    lost = lost_files(there.keys() - inputs.files, store.options_dict)
    half_done = done < len(current.steps)
    if inputs.content.dated and (
        lost or half_done or not _follows(inputs.content.snapshots, current.snapshots)
    ):
        return None
    taken = _taken_shards(inputs, current, done)
    if taken is None:
        return None
    gone = {there[file] for file in lost}
    shared = {file for file, number in there.items() if number in gone}  # files may share a number
    if sum(f.bytes for f in lost) > REBUILT * sum(f.bytes for f in there):
        return None
    kept = {file: number for file, number in there.items() if file not in shared}
    chosen, possible = _chosen(inputs, kept)
    if not possible:
        return None
    start = replace(current, files=kept, shards=taken, steps=(), after=current.digest)
    # What an interrupted run was to retract is still there.
    gone |= {number for step in current.steps[done:] for number in step.retracts}
    manifest = _extended(inputs, start, frozenset(gone))
    if chosen is not None:
        numbers = {manifest.files[file] for file in inputs.files}
        chosen = tuple(sorted(numbers))
    return Todo(None, manifest, 0, 0, _reason(inputs, there, lost, current), chosen=chosen)


def _taken_shards(inputs: Inputs, current: Manifest, done: int) -> dict[int, int] | None:
    """How far each shard was read; None if one has forgotten what changed after that."""
    taken = dict(current.shards)
    for step in current.steps[done:]:
        for take in step.takes:
            if take.span is not None:
                taken[take.piece] = take.span[0]
    for number, (since, upper) in inputs.shards.items():
        if number in taken and not since <= taken[number] <= upper:
            return None
    return taken


def _chosen(inputs: Inputs, there: Mapping[InputFile, int]) -> tuple[tuple[int, ...] | None, bool]:
    """The numbers of the files to read, None for all; and whether they can be told apart.

    Stored files that are not requested are left out of the read, unless they share their number
    with files that are.
    """
    unwanted = {number for file, number in there.items() if file not in inputs.files}
    if not unwanted:
        return None, True
    wanted = {number for file, number in there.items() if file in inputs.files}
    if wanted & unwanted or UNTRACKED in unwanted or inputs.content.dated or inputs.shards:
        return None, False
    return tuple(sorted(wanted)), True


def _reason(
    inputs: Inputs, there: Mapping[InputFile, int], lost: set[InputFile], current: Manifest
) -> str:
    changed = {(file.piece, file.uri) for file in lost}
    added = [f for f in inputs.files - there.keys() if (f.piece, f.uri) not in changed]
    counts = [(len(added), "new file"), (len(lost), "file rewritten or removed")]
    texts = [f"{n} {text if n == 1 else text.replace('file', 'files')}" for n, text in counts if n]
    ahead = [n for n, upper in inputs.frontiers.items() if current.shards.get(n) != upper]
    if ahead:
        texts.append("new updates of a shard")
    return " and ".join(texts) or "interrupted before"


def _follows(snapshots: tuple[int, ...], earlier: tuple[int, ...]) -> bool:
    """Whether `snapshots` starts with the earlier ones."""
    return snapshots[: len(earlier)] == earlier


def _extended(inputs: Inputs, kept: Manifest, gone: frozenset[int]) -> Manifest:
    """`kept`, and the steps that retract `gone` and ingest all inputs that it does not hold."""
    content = inputs.content
    added = inputs.files - kept.files.keys()
    steps: list[Step] = []
    number = kept.next_number
    for take in _batches(content, added):
        apart = content.pieces[take.piece].rows is not None
        steps.append(Step((take,), number, apart))
        number = steps[-1].next_number
    for piece, (since, upper) in inputs.shards.items():
        lower = kept.shards.get(piece, since)
        if piece not in kept.shards or lower < upper:
            steps.append(Step((Take(piece, span=(lower, upper)),)))
    dated = [t for n in sorted(content.dated) for t in _dated(content, n, kept, added)]
    if dated:
        steps.append(Step(tuple(dated)))
    retracts = tuple(sorted(gone))
    if retracts and steps and steps[0].apart:
        steps[0] = replace(steps[0], retracts=retracts)  # what a file held and holds, at one time
    elif retracts or not steps:  # there may be nothing to ingest: that is recorded too
        steps.insert(0, Step((), retracts=retracts))
    files = dict(kept.files)
    stamped = {(file.piece, file.uri): file for file in added}
    for step in steps:
        files |= {stamped[file]: n for file, n in step.numbers().items()}
    return Manifest(
        files,
        {**kept.shards, **inputs.frontiers},
        tuple(steps),
        number,
        kept.retractions + len(gone),
        content.snapshots,
        kept.after,
    )


def _batches(content: Content, files: Iterable[InputFile]) -> Iterator[Take]:
    """The files of pieces without snapshots, as much at a time as an append should hold."""
    wanted = {(file.piece, file.uri) for file in files}
    for number, piece in enumerate(content.pieces):
        uris = [uri for uri in piece.table.uris or () if (number, uri) in wanted]
        if piece.replaced or not uris:
            continue
        if piece.rows is None or piece.table.parquet is None:
            yield Take(number, tuple(uris))
            continue
        sizes = {file.uri: file.rows for file in piece.table.parquet.files}
        held: list[str] = []
        rows = 0
        for uri in uris:
            if held and rows + sizes[uri] > STEP_ROWS:
                yield Take(number, tuple(held))
                held, rows = [], 0
            held.append(uri)
            rows += sizes[uri]
        yield Take(number, tuple(held))


def _dated(
    content: Content, number: int, kept: Manifest, added: Iterable[InputFile]
) -> Iterator[Take]:
    """New files of a piece with snapshots, and what new snapshots retract of the others."""
    new = {file.uri for file in added if file.piece == number}
    piece = content.pieces[number]
    uris = tuple(uri for uri in piece.table.uris or () if uri in new)
    if uris:
        yield Take(number, uris)
    if kept.snapshots and content.snapshots != kept.snapshots:
        last = kept.snapshots[-1]
        old = {file.uri for file in kept.files if file.piece == number}
        back = tuple(uri for uri in piece.recent(last) if uri in old)
        if back:
            yield Take(number, back, last)


def whole(content: Content) -> tuple[Step, ...]:
    """Everything, for one run only."""
    dated = content.dated
    steps = [Step((Take(n),)) for n in range(len(content.pieces)) if n not in dated]
    if dated:
        steps.append(Step(tuple(Take(n) for n in sorted(dated))))
    return tuple(steps)


def lost_files(files: Iterable[InputFile], options: dict[str, str] | None) -> set[InputFile]:
    """Files that were rewritten or removed, and are not just left out of the request."""

    def is_lost(file: InputFile) -> bool:
        store, name = Store.of_file(file.uri, options)
        return store.stamp(name) != file.stamp

    return {file for file in files if is_lost(file)}
