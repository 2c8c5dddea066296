"""Sources with a stream, as they are read: their tables, and what was taken in of their streams."""

from __future__ import annotations

from dataclasses import replace

from windrow.features.definitions import GroupBy, Join
from windrow.sources.stream_shard import taken_in
from windrow.storage.store import Store


def over_streams(join: Join, root: Store) -> Join:
    """The same join over what the project at `root` has taken in."""
    if not any(source.stream for one in join.all_groups for source in one.group.sources):
        return join
    groups = [replace(one, group=group_over_streams(one.group, root)) for one in join.all_groups]
    return replace(join, features=groups)


def group_over_streams(group: GroupBy, root: Store) -> GroupBy:
    """The same group over what the project at `root` has taken in."""
    if not any(source.stream for source in group.sources):
        return group
    sources = [taken_in(source, root) for source in group.sources]
    return replace(group, source=sources if len(sources) > 1 else sources[0])
