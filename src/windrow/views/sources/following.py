"""Following a shard: how far its updates were taken over, and holding it until the rest is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from windrow.errors import CommitConflictError, TimeRangeError
from windrow.shard.shard import Shard


@dataclass(frozen=True)
class Progress:
    """A shard of which the updates before `taken` were taken over; `same`: of this very shard."""

    shard: Shard
    taken: int
    upper: int
    same: bool

    @staticmethod
    def of(shard: Shard, known: Mapping[str, Any]) -> Progress | None:
        """By what the catalogue says of it; None if nothing is new."""
        upper, taken = shard.upper, int(known.get("upper", 0))
        same = known.get("id") == shard.id
        return None if same and upper == taken else Progress(shard, taken, upper, same)

    @property
    def lower(self) -> int | None:
        """Where the new updates begin; None if they cannot be told from those taken over.

        At `since`, what happened then and what happened before cannot be told apart.
        """
        follows = self.same and self.shard.since < self.taken <= self.upper
        return self.taken if follows else None

    def reached(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """What the catalogue says once all of it is taken over."""
        return {**known, "id": self.shard.id, "upper": self.upper}


@contextmanager
def held(shard: Shard, time: int, reader: str) -> Iterator[None]:
    """Until its updates are read, the shard forgets none of those after `time`."""
    with ExitStack() as stack:
        try:
            stack.enter_context(shard.hold(time, reader=reader))
        except TimeRangeError as error:  # it was compacted after it was looked at
            raise CommitConflictError(f"{reader}: {error}") from error
        yield
