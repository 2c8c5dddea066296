"""Relations that are served by key: what statements have to see to.

Who serves them stands above, and is only asked for if a relation is to be served.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from windrow.errors import DefinitionError, WindrowError
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.online import is_online, online_text
from windrow.views.relations.relations import Relations

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Publishing(Protocol):
    """Serves rows of relations by key columns, as of the last tick."""

    def check(self, relation: Relation) -> None:
        """Refuse what cannot be served; nothing is read or written but notes of what is."""

    def publish(self, history: History, relations: Relations) -> None:
        """Bring what is served of all relations up to the last tick, and withdraw all others."""

    def withdraw(self, name: str) -> None:
        """Serve a relation no more."""


@dataclass(frozen=True)
class Online:
    """The relations of a project that are served; `make` gives who serves them."""

    history: History
    relations: Relations
    make: Callable[[], Publishing] | None = None

    def check(
        self, name: str, kind: str, schema: StructType, properties: Mapping[str, str] | None
    ) -> None:
        """Refuse a relation that is to be served and cannot be, before it is there."""
        if online_text(properties) is None:
            return
        if self.make is None or kind not in ("view", "table"):
            self.refuse(kind, name)
        found = {
            "kind": kind,
            "collection": "",
            "schema": schema.json(),
            "properties": dict(properties or {}),
        }
        self.make().check(Relation(name, found))

    def refuse(self, kind: str, name: str) -> NoReturn:
        raise DefinitionError(
            f"{kind} {name}: the property online is for materialized views and tables; serve one "
            f"that is CREATE MATERIALIZED VIEW ... AS SELECT * FROM {name}"
        )

    def withdraw(self, relation: Relation | None) -> None:
        """Before a relation goes, or its property does.

        So whatever is interrupted: what is still defined is served again with the next tick, and
        what is not is not served.
        """
        if relation is not None and self.make is not None and is_online(relation):
            self.make().withdraw(relation.name)

    def publish(self, *, must: bool = True) -> None:
        """After a commit; an error is only told if it must not be."""
        if self.make is None or not any(map(is_online, self.relations.known("view", "table"))):
            return
        try:
            self.make().publish(self.history, self.relations)
        except WindrowError as error:
            if must:
                raise
            warnings.warn(f"views are not served as of this tick yet: {error}", stacklevel=4)
