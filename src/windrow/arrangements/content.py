"""What an arrangement holds: a collection, by a key, with some columns. This names it.

All who need the same content find the same arrangement: another join, a view, the online store.

A stored row has the content's columns and one more, `__file`: the number of the row's input. By it
an arrangement can retract the rows of a file that was rewritten or removed, although the file no
longer holds them. Rows of inputs that are never retracted by themselves (dated snapshots, shards)
have the number 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from windrow.shard.spec import Order
from windrow.sources.pieces import Piece
from windrow.storage.names import digest

FILE = "__file"
FILE_FIELD = pa.field(FILE, pa.int32())
_FORMAT = 2  # of stored rows and manifests: with another one, everything is rebuilt
UNTRACKED = 0  # the number of inputs that are never retracted by themselves


@dataclass(frozen=True)
class Content:
    """The rows of `pieces` with the columns of `schema`, by `key`, in `order`.

    `title` is for people: the names of the sources.
    """

    title: str
    pieces: tuple[Piece, ...]
    schema: pa.Schema
    key: tuple[str, ...]
    order: Order

    @property
    def id(self) -> str:
        """The same for all who need the same, whatever they call their sources."""
        pieces = [piece.fingerprint for piece in self.pieces]
        return digest(_FORMAT, str(self.schema), self.key, str(self.order), pieces)

    @property
    def name(self) -> str:
        return f"{self.title}-{self.id}"

    @property
    def stored_schema(self) -> pa.Schema:
        return self.schema.append(FILE_FIELD)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The times of dated snapshots, at which the state is known as a whole."""
        return tuple(sorted({time for piece in self.pieces for time in piece.replaced}))

    @property
    def dated(self) -> frozenset[int]:
        """The pieces of which each snapshot retracts what precedes it."""
        return frozenset(n for n, piece in enumerate(self.pieces) if piece.replaced)

    @property
    def retracts(self) -> bool:
        """Whether the collection itself retracts rows, which then have to be matched."""
        return any(piece.sign is not None or piece.replaced for piece in self.pieces)

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.key])
