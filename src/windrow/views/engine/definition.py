"""What the catalogue of a project says of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ViewDefinition:
    """A view: its query, the settings it was analysed under, and where its state is kept.

    `arrangements` maps the names of what its operators keep to collections; views that need the
    same one name the same collection. `plan` is the text of the plan that they belong to, and
    `choices` what was chosen for its joins, by what was known then. It relies on the relations
    `append_only`, whose rows are never retracted; `only_grows` says that the same is then true of
    the view's own.
    """

    collection: str
    schema: str  # Spark's, as JSON
    sql: str | None  # None: made of a DataFrame, which a process has to give again
    settings: Mapping[str, str]
    inputs: tuple[str, ...]
    arrangements: Mapping[str, str]
    plan: str
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kind: str = "view"
    append_only: tuple[str, ...] = ()
    only_grows: bool = False
    # What its operators keep, and how much that was thought to be before the view was filled:
    # see `windrow.views.costs.catalogue`.
    keeps: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return {**asdict(self), **lists}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ViewDefinition:
        lists = {name: tuple(data.get(name, ())) for name in _LISTS}
        return ViewDefinition(**{**data, **lists})


_LISTS = ("inputs", "append_only", "keeps")  # tuples, which JSON has no word for
