"""Manifests: which inputs an arrangement has ingested, and the steps that lead there.

An input is a file, known by its URI and a stamp that changes when it is rewritten, or a shard,
known by how far it has been read. Every step is one append, marked with the manifest's digest and
the step's number: so it is known, whatever happened, which inputs were ingested.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from windrow.arrangements.content import UNTRACKED
from windrow.shard.shard import Shard
from windrow.storage.names import digest
from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store

FOLDER = "_manifests"


class InputFile(NamedTuple):
    """A file of a piece; its stamp changes when it is rewritten."""

    piece: int
    uri: str
    stamp: str

    @property
    def bytes(self) -> int:
        return int(self.stamp.split()[0])


@dataclass(frozen=True)
class Take:
    """What a step takes of a piece: some files, a span of a shard, or (neither) all of it.

    With `back`, the time of a snapshot: not the rows, but what later snapshots retract of those
    that were there after it.
    """

    piece: int
    uris: tuple[str, ...] | None = None
    back: int | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Step:
    """One append: the rows of `takes`, and the retraction of the rows of inputs `retracts`.

    The files of a step are numbered from `first` on, or, unless they are `apart`, share `first`.
    """

    takes: tuple[Take, ...]
    first: int = UNTRACKED
    apart: bool = False
    retracts: tuple[int, ...] = ()

    def numbers(self) -> dict[tuple[int, str], int]:
        """The number of each file, by its piece and URI."""
        files = [(t.piece, uri) for t in self.takes if t.back is None for uri in t.uris or ()]
        return {file: self.first + (n if self.apart else 0) for n, file in enumerate(files)}

    @property
    def next_number(self) -> int:
        return max(self.numbers().values(), default=self.first) + 1


@dataclass(frozen=True)
class Manifest:
    """The inputs that an arrangement holds after `steps`.

    `files` have the numbers that their rows carry, `shards` the time up to which each (by piece)
    was read. `next_number` was never given, `retractions` counts the inputs that were retracted.
    """

    files: Mapping[InputFile, int] = field(default_factory=dict)
    shards: Mapping[int, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    next_number: int = UNTRACKED + 1
    retractions: int = 0
    snapshots: tuple[int, ...] = ()
    after: str = ""  # the digest of the manifest that these steps extend

    @functools.cached_property
    def digest(self) -> str:
        return digest(self._record())

    def mark(self, step: int) -> str:
        return f"{self.digest}-{step}"

    def done(self, shard: Shard) -> int:
        """How many of the steps the shard has."""
        return sum(shard.marked(self.mark(n)) is not None for n in range(len(self.steps)))

    def is_done(self, shard: Shard) -> bool:
        """Whether the shard holds what the manifest says, and nothing beyond."""
        return self.is_current(shard) and self.done(shard) == len(self.steps)

    def is_current(self, shard: Shard) -> bool:
        """Whether the last append of the shard is a step of this manifest."""
        done = self.done(shard)
        return done > 0 and shard.marked(self.mark(done - 1)) == shard.upper

    def _record(self) -> dict[str, Any]:
        return {
            "files": sorted([*file, number] for file, number in self.files.items()),
            "shards": sorted(self.shards.items()),
            "steps": [asdict(step) for step in self.steps],
            "next_number": self.next_number,
            "retractions": self.retractions,
            "snapshots": self.snapshots,
            "after": self.after,
        }

    def write(self, store: Store) -> None:
        write_record(_folder(store), f"{self.digest}.json", self._record())

    @staticmethod
    def current(store: Store, shard: Shard) -> Manifest | None:
        """The manifest of what the shard holds; the empty one before the first append."""
        if shard.upper == 0:
            return Manifest()
        return next((m for m in read_all(store) if m.is_current(shard)), None)

    def sweep(self, store: Store, shard: Shard) -> None:
        """Remove manifests whose steps lie behind this one."""
        behind = [m for m in read_all(store) if m.done(shard) and not m.is_current(shard)]
        _folder(store).delete([f"{m.digest}.json" for m in behind])
        _folder(store).drop_half_written()


def read_all(store: Store) -> Iterator[Manifest]:
    folder = _folder(store)
    for name in folder.names():
        record = read_record(folder, name)
        if record is not None:  # another process has removed it
            yield _parse(record)


def _folder(store: Store) -> Store:
    return Store.at(f"{store.uri}/{FOLDER}", store.options_dict)


def _parse(found: dict[str, Any]) -> Manifest:
    def take(one: dict[str, Any]) -> Take:
        uris, span = one["uris"], one["span"]
        return Take(
            one["piece"],
            None if uris is None else tuple(uris),
            one["back"],
            None if span is None else (span[0], span[1]),
        )

    def step(one: dict[str, Any]) -> Step:
        takes = tuple(take(t) for t in one["takes"])
        return Step(takes, one["first"], one["apart"], tuple(one["retracts"]))

    return Manifest(
        {InputFile(piece, uri, stamp): number for piece, uri, stamp, number in found["files"]},
        dict(found["shards"]),
        tuple(step(one) for one in found["steps"]),
        found["next_number"],
        found["retractions"],
        tuple(found["snapshots"]),
        found["after"],
    )
