"""The commits of a Delta table, one by one: files that each added and removed, and change data.

Only the log is read. What the files mean is the protocol's: if a commit has change data, that is
all that it changed; if not, it added and removed the rows of files, except where it says that the
data are the same (`dataChange` is false: files were only rearranged).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from windrow.errors import StorageError
from windrow.storage.store import Store

CHANGES = "_change_data"  # the folder of change data


@dataclass(frozen=True)
class DeltaCommit:
    """A version of a table, by names of files beneath its root.

    `rearranged`: rows have been moved from the files that were removed to those that were added,
    and `changes`, files of change data, says what became of them on the way.
    """

    version: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changes: tuple[str, ...]
    rearranged: bool


class NoFeedError(StorageError):
    """The changes between two versions cannot be told from the log; the message says why."""


def commits_between(store: Store, taken: int, newest: int) -> Iterator[DeltaCommit]:
    """The commits after version `taken`, up to and with `newest`.

    Raises NoFeedError if the log does not have them all, or if one of them says more than files.
    """
    if newest < taken:
        raise NoFeedError(f"the table is at version {newest}, before {taken}, which was read")
    for version in range(taken + 1, newest + 1):
        text = store.get(f"_delta_log/{version:020d}.json")
        if text is None:
            raise NoFeedError(f"the log has no version {version} any more")
        yield _commit(version, [json.loads(line) for line in text.splitlines() if line.strip()])


def _commit(version: int, actions: list[dict[str, Any]]) -> DeltaCommit:
    def found(kind: str) -> list[dict[str, Any]]:
        return [action[kind] for action in actions if action.get(kind) is not None]

    if found("metaData"):
        raise NoFeedError(f"version {version} changes the columns or the properties of the table")
    added, removed = found("add"), found("remove")
    if any(file.get("deletionVector") for file in (*added, *removed)):
        raise NoFeedError(f"version {version} has deletion vectors")
    changes = tuple(unquote(file["path"]) for file in found("cdc"))
    moved = [file for file in (*added, *removed) if not file.get("dataChange", True)]
    if moved and not changes and len(moved) < len(added) + len(removed):
        raise NoFeedError(f"version {version} both changes and rearranges rows")
    return DeltaCommit(
        version,
        tuple(unquote(file["path"]) for file in added),
        tuple(unquote(file["path"]) for file in removed),
        changes,
        bool(changes or moved),
    )
