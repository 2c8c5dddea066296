"""The property `online` of views and tables: the columns that their rows are served by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.errors import DefinitionError, unknown_column
from windrow.views.relations.names import Relation

ONLINE = "online"


def online_text(properties: Mapping[str, str] | None) -> str | None:
    """What the properties of a relation say of serving it; None if it is not to be."""
    for key, value in (properties or {}).items():
        if key.lower() == ONLINE:
            return str(value)
    return None


def is_online(relation: Relation) -> bool:
    return online_text(relation.definition.get("properties")) is not None


def online_keys(text: str, columns: Sequence[str], what: str) -> tuple[str, ...]:
    """The key columns, as they are called; `what` says in errors whose they are.

    >>> online_keys("city, ID", ["id", "city", "price"], "view v")
    ('city', 'id')
    """
    known = {name.lower(): name for name in columns}
    found: list[str] = []
    for one in text.split(","):
        name = one.strip().strip("`")
        if not name:
            raise DefinitionError(
                f"{what}: the property {ONLINE} is {text!r}; it names the columns that rows are "
                "served by, with commas between them"
            )
        if name.lower() not in known:
            raise unknown_column(name, list(columns), f"{what}: the property {ONLINE}")
        if known[name.lower()] in found:
            raise DefinitionError(f"{what}: the property {ONLINE} names {name!r} twice")
        found.append(known[name.lower()])
    if len(found) == len(columns):
        raise DefinitionError(
            f"{what}: the property {ONLINE} names all of its columns, so there is nothing to "
            "fetch; leave one out, or add one, such as true AS present"
        )
    return tuple(found)
