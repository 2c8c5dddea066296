"""Arrangements at rest: which are there, which files they hold, and what is still to be done.

    arrangements/NAME/GENERATION/                 a shard
    arrangements/NAME/GENERATION/_manifests/      a manifest for each set of files taken in

NAME says what an arrangement holds. A *manifest* lists the files that went into it, with what
changes when one is written anew. Rows are taken in step by step, an append each, which carries the
manifest's digest as its mark: so it is known, whatever happened, which files are in.

- All files are the same: the arrangement is used as it is.
- Only new files came: they are taken in, nothing else is read.
- A file changed or went: the arrangement is built anew, as another generation.
- A run was interrupted: it goes on after the last finished step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from windrow.errors import ShardNotFoundError, StorageError
from windrow.features.arrange import GroupInputs
from windrow.features.pieces import Piece
from windrow.shard.shard import Shard
from windrow.shard.store import Store

STEP_ROWS = 64_000_000  # rows of files that one append takes in; an interrupted run repeats one
_MANIFESTS = "_manifests"


@dataclass(frozen=True)
class Step:
    """One append: some files of a piece, or (`uris` None) all of it."""

    piece: int
    uris: tuple[str, ...] | None


@dataclass(frozen=True)
class Manifest:
    """Files, as (piece, uri, stamp), taken in by the appends [base, base + steps)."""

    files: frozenset[tuple[int, str, str]]
    base: int
    steps: int

    @property
    def digest(self) -> str:
        text = json.dumps([sorted(self.files), self.base, self.steps])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def upper(self) -> int:
        return self.base + self.steps

    def write(self, store: Store) -> None:
        text = json.dumps({"files": sorted(self.files), "base": self.base, "steps": self.steps})
        with Store.at(f"{store.uri}/{_MANIFESTS}", store.options_dict).open_output(
            f"{self.digest}.json"
        ) as out:
            out.write(text.encode())

    @staticmethod
    def read_all(store: Store) -> Iterator[Manifest]:
        folder = Store.at(f"{store.uri}/{_MANIFESTS}", store.options_dict)
        for name in folder.names():
            try:
                found = json.loads(folder.open_input(name).read())
                files = frozenset((int(p), str(u), str(s)) for p, u, s in found["files"])
                yield Manifest(files, int(found["base"]), int(found["steps"]))
            except (ValueError, KeyError, StorageError):
                continue  # half written by a process that died: no append carries its digest


@dataclass(frozen=True)
class Todo:
    """What is to be done to an arrangement: `steps` after the first `done` of `manifest`.

    `uri` None is an arrangement for one backfill only. `rows` are those that are there.
    """

    uri: str | None
    manifest: Manifest
    steps: tuple[Step, ...]
    done: int
    rows: int
    reason: str
    hottest: int = 0  # rows of the largest key, as far as parts that hold nothing else tell

    @property
    def action(self) -> str:
        if self.done == len(self.steps):
            return "use"
        return "extend" if self.rows or self.done else "build"

    @property
    def pending(self) -> tuple[Step, ...]:
        return self.steps[self.done :]


def files_of(pieces: Sequence[Piece]) -> frozenset[tuple[int, str, str]] | None:
    """All files with their stamps; None if a piece is not files."""
    found = []
    for number, piece in enumerate(pieces):
        stamps = piece.table.stamps()
        if stamps is None:
            return None
        found += [(number, uri, stamp) for uri, stamp in stamps.items()]
    return frozenset(found)


def find(inputs: GroupInputs, store: Store) -> Todo:
    """What has to be done for the arrangement of `inputs`, given what is there."""
    files = files_of(inputs.pieces)
    if files is None:
        steps = tuple(Step(n, None) for n in range(len(inputs.pieces)))
        why = "a change behind a name would not be noticed, so it is built each time"
        return Todo(None, Manifest(frozenset(), 0, len(steps)), steps, 0, 0, why)
    folder = Store.at(f"{store.uri}/arrangements/{inputs.name}", store.options_dict)
    candidates = [c for g in folder.folders() for c in _candidates(folder, g, inputs, files)]
    stale = bool(candidates) or bool(folder.folders())
    usable = [c for c in candidates if c is not None]
    if usable:
        return min(usable, key=lambda todo: sum(len(s.uris or ()) for s in todo.pending))
    steps = _steps(inputs, files)
    manifest = Manifest(files, 0, len(steps))
    why = "a file has changed or gone" if stale else "not there yet"
    return Todo(f"{folder.uri}/{manifest.digest}", manifest, steps, 0, 0, why)


def _candidates(
    folder: Store, generation: str, inputs: GroupInputs, files: frozenset[tuple[int, str, str]]
) -> Iterator[Todo]:
    store = Store.at(f"{folder.uri}/{generation}", folder.options_dict)
    try:
        shard = Shard.open(store.uri, storage_options=store.options_dict)
    except ShardNotFoundError:
        return
    for manifest in Manifest.read_all(store):
        upper = shard.marked(manifest.digest) or 0
        if upper != shard.upper and not (upper == 0 and shard.upper == manifest.base):
            continue  # other appends came after it
        rows, hottest = shard.stats().rows, shard.hottest_prefix()
        if manifest.files == files:
            steps = _steps(inputs, _added(manifest, store, files))
            done = max(upper - manifest.base, 0)
            why = "its files have not changed" if done == len(steps) else "interrupted before"
            yield Todo(store.uri, manifest, steps, done, rows, why, hottest)
        elif upper == manifest.upper and manifest.files < files and _extensible(inputs):
            added = files - manifest.files
            steps = _steps(inputs, added)
            more = Manifest(files, upper, len(steps))
            count = len(added)
            why = f"{count} new file{'s' if count > 1 else ''}"
            yield Todo(store.uri, more, steps, 0, rows, why, hottest)


def _added(
    manifest: Manifest, store: Store, files: frozenset[tuple[int, str, str]]
) -> frozenset[tuple[int, str, str]]:
    """The files that a manifest's own steps take in: those that no earlier manifest holds."""
    earlier = [m.files for m in Manifest.read_all(store) if m.upper == manifest.base]
    return files - max(earlier, key=len, default=frozenset())


def _extensible(inputs: GroupInputs) -> bool:
    """A new snapshot takes back what came before it; then all is built anew."""
    return not any(piece.replaced for piece in inputs.pieces)


def _steps(inputs: GroupInputs, files: frozenset[tuple[int, str, str]]) -> tuple[Step, ...]:
    """Appends that take in `files`; at least one, since an arrangement may be empty."""
    steps: list[Step] = []
    wanted = {(number, uri) for number, uri, _ in files}
    for number, piece in enumerate(inputs.pieces):
        uris = [uri for uri in piece.table.uris or () if (number, uri) in wanted]
        if not uris:
            continue
        if piece.rows is None or piece.table.parquet is None:
            whole = len(uris) == len(piece.table.uris or ())
            steps.append(Step(number, None if whole else tuple(uris)))
            continue
        sizes = {file.uri: file.rows for file in piece.table.parquet.files}
        held: list[str] = []
        rows = 0
        for uri in uris:
            if held and rows + sizes[uri] > STEP_ROWS:
                steps.append(Step(number, tuple(held)))
                held, rows = [], 0
            held.append(uri)
            rows += sizes[uri]
        steps.append(Step(number, tuple(held)))
    return tuple(steps) or (Step(0, None),)


def sweep(uri: str, root: Store) -> None:
    """Remove other generations of the arrangement at `uri` whose files have changed or gone."""
    parent, _, kept = uri.rpartition("/")
    name, options = parent.rpartition("/")[2], root.options_dict
    for generation in Store.at(parent, options).folders():
        store = Store.at(f"{parent}/{generation}", options)
        manifests = list(Manifest.read_all(store))
        if generation != kept and any(_outdated(m, options) for m in manifests):
            Store.at(f"{root.uri}/tiles/{name}/{generation}", options).remove()
            store.remove()


def _outdated(manifest: Manifest, options: dict[str, str] | None) -> bool:
    for _, uri, stamp in manifest.files:
        store, name = Store.of_file(uri, options)
        if store.stamp(name) != stamp:
            return True
    return False
