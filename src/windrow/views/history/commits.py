"""Commits: what one record of a project's history does, as data that can be written as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.errors import OptionError
from windrow.spark.tasks import WrittenFile

WRITE, TICK, DEFINE = "write", "tick", "define"
MAINTAIN = "maintain"  # of the history itself: what became of shards; it changes no content
KINDS = (WRITE, TICK, DEFINE)


@dataclass(frozen=True)
class Commit:
    """What one record does, all of it or nothing.

    `appends` names the parts of each collection's batch, which ends after `time`; without parts,
    the batch only moves the collection's upper. `created` are collections that were made before,
    with facts about each; `dropped` are gone from then on. `catalogue` holds definitions by name,
    None for one that is removed. `ticked` is the time that all views are at. `note` is for people.
    """

    kind: str
    time: int
    appends: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)
    created: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    catalogue: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    ticked: int | None = None
    note: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(f"a commit of kind {self.kind!r}; it is one of {list(KINDS)}")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of what there is to say; what is empty is left out."""
        found = {
            "appends": {
                id: [[file.path, file.rows, file.bytes, file.statistics] for file in files]
                for id, files in self.appends.items()
            },
            "created": {id: dict(facts) for id, facts in self.created.items()},
            "dropped": list(self.dropped),
            "catalogue": {
                name: None if definition is None else dict(definition)
                for name, definition in self.catalogue.items()
            },
            "note": dict(self.note),
        }
        body: dict[str, Any] = {"kind": self.kind, "time": self.time}
        if self.ticked is not None:
            body["ticked"] = self.ticked
        return body | {name: value for name, value in found.items() if value}
