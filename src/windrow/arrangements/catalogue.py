"""The catalogue: which arrangements there are, how far their inputs are ingested, who uses them.

    catalogue/arrangements/ID/content.json      what it holds, for people
    catalogue/arrangements/ID/users/USER.json   who uses it, and when last

It is written beside the arrangements and read from there: the shards and their manifests remain
the truth, and a catalogue that is lost costs nothing but its names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from windrow.arrangements.content import Content
from windrow.arrangements.manifest import Manifest
from windrow.errors import ShardNotFoundError
from windrow.shard.holds import Held
from windrow.shard.shard import Shard
from windrow.storage.names import digest
from windrow.storage.records import read_record, write_record
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
    """An arrangement as it is stored; `title` are names of its sources.

    `files` are the input files that were ingested, `shards` the time up to which each shard was
    read; `upper` and `since` are the arrangement's own frontiers. `users` have used it at some
    time, `readers` hold it right now.
    """

    id: str
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
    readers: tuple[Held, ...]


def note_use(content: Content, root: Store, user: str) -> None:
    """Remember that `user` uses the arrangement of `content`, and what that holds."""
    folder = _described(root, content.id)
    taken = [(c.name, c.source) for c in content.pieces[0].columns]
    sources = {name: source for name, source in taken if source}
    described = {
        "title": content.title,
        "tables": [piece.table.text for piece in content.pieces],
        "key": [sources.get(name, name) for name in content.key],
        "columns": [sources.get(name, name) for name in content.schema.names],
    }
    write_record(folder, _CONTENT, described)
    write_record(folder, f"users/{digest(user)}.json", {"name": user, "at": now_millis()})


def entries(root: Store) -> Iterator[Entry]:
    """All arrangements beneath `root`."""
    folder = Store.at(f"{root.uri}/arrangements", root.options_dict)
    for id_ in folder.folders():
        own = Store.at(f"{folder.uri}/{id_}", root.options_dict)
        notes = _described(root, id_)
        described = read_record(notes, _CONTENT) or {}
        names = [one for one in notes.names() if one.startswith("users/")]
        users = [found for one in names if (found := read_record(notes, one))]
        for generation in own.folders():
            store = Store.at(f"{own.uri}/{generation}", root.options_dict)
            try:
                shard = Shard.open(store.uri, storage_options=store.options_dict)
            except ShardNotFoundError:
                continue
            if shard.retired:
                continue
            current = Manifest.current(store, shard)
            stats = shard.stats()
            yield Entry(
                id=id_,
                uri=store.uri,
                title=described.get("title", id_),
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
                readers=tuple(shard.holds()),
            )


def _described(root: Store, id_: str) -> Store:
    return Store.at(f"{root.uri}/catalogue/arrangements/{id_}", root.options_dict)
