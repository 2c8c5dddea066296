"""`windrow upload` and `windrow fetch`: put features online, and look at them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from windrow.commands.render import console
from windrow.errors import DefinitionError, OptionError
from windrow.features.definitions import GroupBy, Join
from windrow.online.fetched import Fetched
from windrow.online.upload import Uploaded
from windrow.views.times import shown
from windrow.workspace import Workspace


def upload(
    workspace: Workspace,
    names: Sequence[str] = (),
    *,
    as_of: str | None = None,
    progress: bool | None = None,
) -> list[Uploaded]:
    """Put joins and groups online, by name (by default all joins), and say what was written."""
    served = [named(workspace, name) for name in names] or list(workspace.joins_named(None))
    project = workspace.project(progress=progress)
    found = project.upload(*served, as_of=as_of)
    table = Table("group", "keys", "rows", "bytes a key", "from", box=None)
    for one in found:
        size = f"{one.bytes / max(one.keys, 1):,.0f}"
        table.add_row(one.group, f"{one.keys:,}", f"{one.rows:,}", size, shown(one.sealed))
    console().print(table)
    return found


def fetch(
    workspace: Workspace, name: str, pairs: Sequence[str], *, at: str | None = None
) -> Fetched:
    """Print the features of one key, given as NAME=VALUE, one in a line with its status."""
    project = workspace.project()
    described = project.fetcher.describe(name)
    known = dict([*described.keys, *described.inputs])
    key = {}
    for pair in pairs:
        column, equals, text = pair.partition("=")
        if not equals or column not in known:
            raise OptionError(
                f"{pair!r} is not a key; write {' '.join(f'{one}=...' for one in known)}"
            )
        key[column] = _value(text, str(known[column]))
    found = project.fetch(name, [key], at=at)
    table = Table("feature", "value", "status", box=None)
    for feature, values, statuses in zip(found.names, found.columns, found.statuses, strict=True):
        table.add_row(feature, _text(values[0]), statuses[0].value)
    console().print(table)
    return found


def named(workspace: Workspace, name: str) -> Join | GroupBy:
    """The join or group of this name."""
    groups: Mapping[str, GroupBy] = workspace.groups
    if name in groups and name not in workspace.joins:
        return groups[name]
    try:
        return workspace.join(name)
    except DefinitionError as error:
        there = f"; groups are {', '.join(groups)}" if groups else ""
        raise DefinitionError(f"{error}{there}") from None


def _value(text: str, type_: str) -> Any:
    """What is typed, as JSON where it is a number or a boolean; all else is text."""
    if type_ in ("string", "large_string") or text == "":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return "" if value is None else str(value)
