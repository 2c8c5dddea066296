"""A relation of SQL: a view with its plan, a table or a source; rows, changes, and its readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windrow.console.catalogue import Catalogue, Relation
from windrow.console.pages.reading import Reading
from windrow.console.plans import plan_of
from windrow.console.refs import Ref
from windrow.console.requests import Absent, Page, Request
from windrow.console.rows import Change, Newest, left_out, newest, rows_of_source
from windrow.console.text import short
from windrow.errors import WindrowError
from windrow.views.costs.catalogue import TICKS, arrangements
from windrow.views.costs.ticks import last_runs
from windrow.views.relations.names import Names
from windrow.views.relations.online import online_text
from windrow.views.sources.numbers import NUMBER
from windrow.views.statements.describe import python_text

_ATTEMPTS = 3


def view(reading: Reading, request: Request) -> Page:
    """A view."""
    catalogue = reading.catalogue()
    found = _named(catalogue, request, ("view",))
    history = reading.looking.history
    lines = arrangements(Names(history), history, found.name, notes=catalogue.notes)
    runs = last_runs(catalogue.notes, [found.name], TICKS)[found.name]
    text = str(found.definition.get("plan") or "")
    plan = plan_of(found.name, text, lines, runs)
    context = _common(reading, catalogue, found) | {
        "plan": plan,
        "drawn": None if plan is None else plan.drawn(),
        "plan_text": text,
        "lines": lines,
        "runs": runs,
        "waits": catalogue.waiting.get(found.name, ()),
        "shared": {line.collection: _users(catalogue, line.collection) for line in lines},
    }
    return Page("view.html", context)


def relation(reading: Reading, request: Request) -> Page:
    """A table, or a source."""
    catalogue = reading.catalogue()
    found = _named(catalogue, request, ("table", "source"))
    writes = [
        note
        for note in catalogue.notes
        if note.get("kind") in ("write", "define") and _mentions(note, found)
    ]
    definition = found.definition
    context = _common(reading, catalogue, found) | {
        "writes": writes[:20],
        "tables": definition.get("tables") or {},
        "python": python_text(definition) if "source" in definition else None,
        "late": (found.changed_at or 0) > catalogue.ticked,
        "quarantine": _quarantine(reading, found),
    }
    return Page("relation.html", context)


def _quarantine(reading: Reading, found: Relation) -> list[Change]:
    if not found.quarantined:
        return []
    names = [name for name, _, _ in columns_of(found)]
    return left_out(reading.looking.history.collection(found.collection), names)


def row(reading: Reading, request: Request) -> Page:
    """One of the newest rows or changes of a relation, with all of its values in full."""
    catalogue = reading.catalogue()
    found = _named(catalogue, request, ("table", "source", "view"))
    shown = _newest(reading, found, request.number("until", 0) or None)
    rows = shown.changes if request.get("list") == "changes" else shown.rows
    number = request.number("number", 0)
    if number >= len(rows):
        raise Absent("There is no such row any more.")
    context = {
        "relation": found,
        "change": rows[number],
        "columns": shown.columns,
        "title": short(found.name, 80),
    }
    return Page("row.html", context)


def _common(reading: Reading, catalogue: Catalogue, found: Relation) -> dict[str, Any]:
    rows: Newest | None = None
    failure = None
    try:
        rows = _newest(reading, found)
    except WindrowError as error:  # damaged, or compacted just now: the rest is still worth seeing
        failure = str(error)
    groups = [
        name
        for name, source in sorted(catalogue.sources.items())
        if getattr(source, "view", None) == found.name
    ]
    return {
        "relation": found,
        "title": short(found.name, 80),
        "catalogue": catalogue,
        "columns": columns_of(found),
        "online": online_text(found.definition.get("properties")),
        "readers": catalogue.readers.get(found.name, ()),
        "inputs": [
            catalogue.relations[name] for name in found.inputs if name in catalogue.relations
        ],
        "sources": groups,
        "attention": _about(reading, catalogue, found.ref),
        "newest": rows,
        "rows_failure": failure,
    }


def _about(reading: Reading, catalogue: Catalogue, ref: Ref) -> list[Any]:
    """What needs attention about a thing, or is caused by it."""
    return [one for one in reading.attention(catalogue) if one.concerns(ref)][:12]


def _newest(reading: Reading, found: Relation, until: int | None = None) -> Newest:
    """Rows are read again if their parts were compacted away meanwhile."""
    history = reading.looking.history
    names = [name for name, _, _ in columns_of(found)]
    for attempt in range(_ATTEMPTS):
        try:
            collection = history.collection(found.collection)
            return newest(collection, names, until, rows_of_source(collection))
        except WindrowError:
            if attempt == _ATTEMPTS - 1:
                raise
            history.refresh()
    raise AssertionError


def columns_of(found: Relation) -> list[tuple[str, str, bool]]:
    """Name and type of each column, and whether it may be NULL."""
    given = found.definition.get("schema")
    schema = json.loads(given) if isinstance(given, str) else given
    fields = (schema or {}).get("fields") or ()
    hidden = {NUMBER}
    return [
        (str(one["name"]), _type(one["type"]), bool(one.get("nullable", True)))
        for one in fields
        if one["name"] not in hidden
    ]


def _type(given: Any) -> str:
    """A type of Spark's JSON, as SQL writes it."""
    if isinstance(given, str):
        return given
    match given.get("type"):
        case "array":
            return f"array<{_type(given['elementType'])}>"
        case "map":
            return f"map<{_type(given['keyType'])}, {_type(given['valueType'])}>"
        case "struct":
            inner = ", ".join(f"{one['name']}: {_type(one['type'])}" for one in given["fields"])
            return f"struct<{inner}>"
        case other:
            return str(other)


def _users(catalogue: Catalogue, collection: str) -> Sequence[str]:
    """The views that use a collection."""
    return sorted(
        name
        for name, one in catalogue.relations.items()
        if any(kept["collection"] == collection for kept in one.definition.get("keeps") or ())
    )


def _mentions(note: Any, found: Relation) -> bool:
    text = str(note.get("sql") or note.get("table") or note.get("source") or "")
    return found.name.lower() in text.lower()


def _named(catalogue: Catalogue, request: Request, kinds: Sequence[str]) -> Relation:
    name = catalogue.named(request.get("name"))
    found = catalogue.relations.get(name)
    if found is None or found.kind not in kinds:
        raise Absent(f"There is no {' or '.join(kinds)} {short(name)!r} in the project.")
    return found
