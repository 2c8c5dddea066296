"""Passes: the groups of a join that are computed together, since they share their keys."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.features.definitions import Join, JoinedGroup


@dataclass(frozen=True)
class Pass:
    """Groups whose keys are the same left columns; they are computed together."""

    left_keys: tuple[str, ...]
    groups: tuple[JoinedGroup, ...]


def passes_of(join: Join) -> list[Pass]:
    """The groups of a join by their left keys, in the order in which keys first occur."""
    by_keys: dict[tuple[str, ...], list[JoinedGroup]] = {}
    for group in join.groups:
        by_keys.setdefault(group.left_keys, []).append(group)
    return [Pass(keys, tuple(groups)) for keys, groups in by_keys.items()]
