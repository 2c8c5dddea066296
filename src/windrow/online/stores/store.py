"""What every store of records does: the interface that uploads, streams and fetches share.

A store holds two kinds of values, both bytes. *Records* are many, one for each key of a generation;
their keys begin with the generation, 8 bytes. *Notes* are few and have names: what is served, and
how far it is. Stores are opened by `open_store`, are safe to share between threads, and are pickled
as their address: each process opens its own connection when it first needs one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from windrow.errors import OptionError

Read = tuple[list[bytes | None], list[bytes | None]]  # notes and records
Fold = Callable[[Sequence[bytes | None]], Sequence[bytes | None]]


@dataclass(frozen=True)
class StoreSize:
    """`records` and `bytes` are those of the whole store, as far as it can tell cheaply."""

    records: int
    bytes: int


class RecordStore(ABC):
    """Records by key, and notes by name."""

    address: str  # as a user writes it, without secrets

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether only processes of this machine reach it."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether a read may have to wait for another process."""

    @abstractmethod
    def read(self, notes: Sequence[str], keys: Sequence[bytes]) -> Read:
        """Notes and records as they were at one moment; None for those that are not there."""

    def read_soon(
        self, notes: Sequence[str], keys: Sequence[bytes], done: Callable[[Read | None], None]
    ) -> bool:
        """The same on an event loop, without waiting: `done` is called there with what was read.

        False if that is not possible now, and nothing is under way. `done` is given None if an
        answer did not come; `read` then tries again, or says what is wrong.
        """
        return False

    @abstractmethod
    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Store many records, in any order, durably; for a generation that nobody reads yet."""

    @abstractmethod
    def update(self, keys: Sequence[bytes], fold: Fold) -> None:
        """Replace the records of some keys by what `fold` makes of them, durably.

        `fold` is given the records of all `keys`, and returns as many; None removes one. Every
        record is replaced in one step, and not if another writer changed it since: then `fold` is
        called again with what is there now, so it must not have effects of its own. Where the
        connection to a store is lost just as it answers, nobody can tell whether a record was
        replaced: then `fold` may be given what it made before, and has to know it.
        """

    @abstractmethod
    def change_note(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replace a note by what `change` makes of it, in one step and durably; None removes it.

        `change` may be called again if another writer was first.
        """

    @abstractmethod
    def notes(self, prefix: str = "") -> list[str]:
        """The names of all notes that begin with `prefix`."""

    @abstractmethod
    def remove(self, prefix: bytes) -> int:
        """Remove all records whose keys begin with `prefix`, some at a time; returns how many."""

    @abstractmethod
    def size(self) -> StoreSize:
        """How much it holds."""

    @abstractmethod
    def close(self) -> None:
        """Close this process's connection; the next call opens another."""


def folded(keys: Sequence[bytes], found: Sequence[bytes | None], fold: Fold) -> list[bytes | None]:
    """What `fold` makes of the records of `keys`: as many."""
    made = list(fold(found))
    if len(made) != len(keys):
        raise OptionError(f"an update of {len(keys)} records returned {len(made)}")
    return made


def check_distinct(keys: Sequence[bytes]) -> None:
    if len(set(keys)) != len(keys):
        raise OptionError("an update names a key twice; of what is made of it, none would be right")
