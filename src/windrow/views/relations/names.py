"""The names of a project: tables, sources and views share one space, compared without case."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from windrow.errors import RelationExistsError, RelationNotFoundError
from windrow.views.history.history import History
from windrow.views.storable import Storable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Relation:
    """A name of the project, as it was defined, and its definition."""

    name: str
    definition: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.definition["kind"])

    @property
    def collection(self) -> str:
        return str(self.definition["collection"])

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key; none if there is none."""
        return tuple(self.definition.get("key") or ())

    @property
    def is_append_only(self) -> bool:
        """Whether a table or a source is declared never to retract a row."""
        return bool(self.definition.get("append_only"))

    @property
    def schema(self) -> StructType:
        """The columns as queries see them."""
        found = self.definition["schema"]
        return _schema(found if isinstance(found, str) else json.dumps(found))

    @property
    def storable(self) -> Storable:
        return Storable.of(self.schema, f"{self.kind} {self.name}")


@functools.lru_cache(maxsize=1_024)
def _schema(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


class Names:
    """What is defined, as of the version that a history is at."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._supposed: Mapping[str, Mapping[str, Any]] = {}

    @property
    def catalogue(self) -> Mapping[str, Mapping[str, Any]]:
        """Definitions by name."""
        known = self._history.catalogue
        return {**known, **self._supposed} if self._supposed else known

    @contextmanager
    def as_if(self, definitions: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """A block in which these are defined, too: what is about to be committed."""
        before, self._supposed = self._supposed, definitions
        try:
            yield
        finally:
            self._supposed = before

    def known(self, *kinds: str) -> list[Relation]:
        """The relations of these kinds (by default of all), by name."""
        found = [Relation(name, one) for name, one in sorted(self.catalogue.items())]
        return [one for one in found if not kinds or one.kind in kinds]

    def get(self, name: str) -> Relation | None:
        """The relation of this name, if there is one."""
        exact = self.catalogue.get(name)
        if exact is not None:
            return Relation(name, exact)
        wanted = name.lower()
        for own, definition in self.catalogue.items():
            if own.lower() == wanted:
                return Relation(own, definition)
        return None

    def find(self, name: str, *kinds: str) -> Relation:
        """The relation of this name and of one of these kinds, or an error that helps."""
        found = self.get(name)
        what = " or ".join(kinds) or "table, source or view"
        if found is None:
            raise RelationNotFoundError(f"there is no {what} {name!r}; {self.hint(name, *kinds)}")
        if kinds and found.kind not in kinds:
            raise RelationNotFoundError(f"{found.name!r} is a {found.kind}, not a {what}")
        return found

    def only_grows(self, name: str) -> bool:
        """Whether the rows of a relation are never retracted: by declaration, or of a view by its
        plan, as long as what it reads keeps to its own."""
        relation = self.get(name)
        if relation is None or relation.kind != "view":
            return relation is not None and relation.is_append_only
        reads = relation.definition.get("inputs") or ()
        return bool(relation.definition.get("only_grows")) and all(map(self.only_grows, reads))

    def refuse_taken(self, name: str, *, but: str | None = None) -> Relation | None:
        """Raise an error if the name is taken; a relation of the kind `but` is given back."""
        found = self.get(name)
        if found is None or found.kind == but:
            return found
        raise RelationExistsError(
            f"there is a {found.kind} {found.name!r} already; choose another name, or DROP it first"
        )

    def hint(self, name: str, *kinds: str) -> str:
        """What may have been meant by a name that is not there."""
        names = [one.name for one in self.known(*kinds)]
        close = get_close_matches(name.lower(), [one.lower() for one in names], n=1)
        if close:
            meant = next(one for one in names if one.lower() == close[0])
            return f"did you mean {meant!r}?"
        return f"there are: {', '.join(names[:20])}" if names else "there are none yet"
