"""The catalogue: which arrangements there are, how far their inputs are taken in, who uses them.

    catalogue/arrangements/NAME/content.json      what it holds, for people
    catalogue/arrangements/NAME/users/ID.json     who uses it, and when last

It is written beside the arrangements and read from there: the shards and their manifests remain
the truth, and a catalogue that is lost costs nothing but its names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from windrow.arrangements.content import Content
from windrow.arrangements.manifest import Manifest
from windrow.errors import ShardNotFoundError, StorageError
from windrow.shard.shard import Shard
from windrow.storage.names import digest
from windrow.storage.store import Store
from windrow.time import now_millis

_CONTENT = "content.json"


@dataclass(frozen=True)
class User:
    """Who uses an arrangement, and when last (milliseconds)."""

    name: str
    at: int


@dataclass(frozen=True)
class Entry:
    """An arrangement as it rests.

    `files` are the input files that are taken in, `shards` the time up to which each shard was
    read; `upper` and `since` are the arrangement's own frontiers.
    """

    name: str
    uri: str
    title: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: int
    bytes: int
    since: int
    upper: int
    files: int
    shards: tuple[int, ...]
    finished: bool
    users: tuple[User, ...]


def note_use(content: Content, root: Store, user: str) -> None:
    """Remember that `user` uses the arrangement of `content`, and what that holds."""
    folder = _described(root, content.name)
    taken = [(c.name, c.source) for c in content.pieces[0].columns]
    sources = {name: source for name, source in taken if source}
    described = {
        "title": content.title,
        "tables": [piece.table.text for piece in content.pieces],
        "key": [sources.get(name, name) for name in content.key],
        "columns": [sources.get(name, name) for name in content.schema.names],
    }
    _write(folder, _CONTENT, described)
    _write(folder, f"users/{digest(user)}.json", {"name": user, "at": now_millis()})


def entries(root: Store) -> Iterator[Entry]:
    """All arrangements beneath `root`, by name."""
    folder = Store.at(f"{root.uri}/arrangements", root.options_dict)
    for name in folder.folders():
        own = Store.at(f"{folder.uri}/{name}", root.options_dict)
        notes = _described(root, name)
        described = _read(notes, _CONTENT)
        names = [one for one in notes.names() if one.startswith("users/")]
        users = [found for one in names if (found := _read(notes, one))]
        for generation in own.folders():
            store = Store.at(f"{own.uri}/{generation}", root.options_dict)
            try:
                shard = Shard.open(store.uri, storage_options=store.options_dict)
            except ShardNotFoundError:
                continue
            current = Manifest.current(store, shard)
            stats = shard.stats()
            yield Entry(
                name=name,
                uri=store.uri,
                title=described.get("title", name),
                key=tuple(described.get("key", shard.key)),
                columns=tuple(described.get("columns", shard.schema.names)),
                rows=stats.rows,
                bytes=stats.bytes,
                since=stats.since,
                upper=stats.upper,
                files=0 if current is None else len(current.files),
                shards=() if current is None else tuple(current.shards.values()),
                finished=current is not None and current.done(shard) == len(current.steps),
                users=tuple(User(user["name"], user["at"]) for user in users),
            )


def _described(root: Store, name: str) -> Store:
    return Store.at(f"{root.uri}/catalogue/arrangements/{name}", root.options_dict)


def _write(store: Store, name: str, value: dict[str, Any]) -> None:
    folder, _, file = name.rpartition("/")
    at = Store.at(f"{store.uri}/{folder}", store.options_dict) if folder else store
    with at.open_output(file) as out:
        out.write(json.dumps(value).encode())


def _read(store: Store, name: str) -> dict[str, Any]:
    try:
        found = json.loads(store.open_input(name).read())
    except (StorageError, OSError, ValueError):
        return {}  # not there, or half written
    return found if isinstance(found, dict) else {}
