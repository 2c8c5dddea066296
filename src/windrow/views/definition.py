"""What the catalogue of a project says of a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ViewDefinition:
    """A view: its query, the settings it was analysed under, and where its state is kept.

    `arrangements` maps the names of what its operators keep to collections; views that need the
    same one name the same collection. `plan` is the text of the plan that they belong to. It
    relies on the relations `append_only`, whose rows are never retracted; `only_grows` says that
    the same is then true of the view's own.
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
    kind: str = "view"
    append_only: tuple[str, ...] = ()
    only_grows: bool = False

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return {**found, "inputs": list(self.inputs), "append_only": list(self.append_only)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ViewDefinition:
        lists = {name: tuple(data.get(name, ())) for name in ("inputs", "append_only")}
        return ViewDefinition(**{**data, **lists})
