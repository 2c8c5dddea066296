"""Features: a group, a join, a source of them, and one feature with its window and its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.algebra.windows import Window, WindowKind
from windrow.console.catalogue import Catalogue, Group
from windrow.console.definitions import feature_text, source_facts, window_says
from windrow.console.distribution import Distributions
from windrow.console.explained import Explained, explain, read_key
from windrow.console.pages.reading import Reading
from windrow.console.refs import Ref
from windrow.console.requests import Absent, Page, Request
from windrow.console.text import short, typed
from windrow.errors import WindrowError
from windrow.time import now_millis
from windrow.views.times import millis

KEY = "key."  # how the fields of a form that are keys begin
_distributions = Distributions()


def group(reading: Reading, request: Request) -> Page:
    """A group: its sources, keys and features."""
    catalogue = reading.catalogue()
    found = _group(catalogue, request.get("name"))
    context = {
        "group": found,
        "catalogue": catalogue,
        "attention": _about(reading, catalogue, found.ref),
        "joins": catalogue.joins_of.get(found.name, ()),
        "texts": [feature_text(feature) for feature in found.features],
        "defined": None
        if found.definition is None or not found.is_changed
        else [(f.name, feature_text(f)) for f in found.definition.features],
    }
    return Page("group.html", context)


def join(reading: Reading, request: Request) -> Page:
    """A join: what it puts beside queries, and what it derives."""
    catalogue = reading.catalogue()
    name = catalogue.named(request.get("name"))
    found = catalogue.joins.get(name)
    if found is None:
        if name in catalogue.groups:  # what is fetched or compared by name may be either
            return group(reading, request)
        raise Absent(f"There is no join {short(name)!r} in the project.")
    reports = [one for one in reading.reports() if one.name == name]
    context = {
        "join": found,
        "catalogue": catalogue,
        "attention": _about(reading, catalogue, found.ref),
        "reports": reports[:5],
        "derive": {} if found.definition is None else dict(found.definition.derive),
        "derived": () if found.served is None else found.served.derived.types,
    }
    return Page("join.html", context)


def source(reading: Reading, request: Request) -> Page:
    """A source of features, with its stream."""
    catalogue = reading.catalogue()
    name = catalogue.named(request.get("name"))
    users = [one for one in catalogue.groups.values() if name in one.sources]
    found = catalogue.sources.get(name)
    if found is None and not users:
        raise Absent(f"There is no source {short(name)!r} in the project.")
    ref = Ref("source", name)
    context = {
        "name": name,
        "source": found,
        "facts": [] if found is None else source_facts(found),
        "stream": catalogue.streams.get(name),
        "groups": users,
        "attention": _about(reading, catalogue, ref),
        "ref": ref,
        "catalogue": catalogue,
        "messages": _messages(reading, name, catalogue),
    }
    return Page("source.html", context)


def _messages(reading: Reading, name: str, catalogue: Catalogue) -> list[dict[str, Any]]:
    """Some of the messages of a stream that became no row."""
    state = catalogue.streams.get(name)
    if state is None or not state.quarantined:
        return []
    from deltalake import DeltaTable

    store = reading.looking.store.beneath(f"quarantine/streams/{name}")
    try:
        table = DeltaTable(store.delta_uri, storage_options=store.options_dict)
        rows: list[dict[str, Any]] = table.to_pyarrow_dataset().head(20).to_pylist()
    except Exception:  # delta-rs raises a class of its own for each of its parts
        return []
    for row in rows:
        row["message"] = (row.get("message") or b"").decode(errors="replace")
    return rows


def feature(reading: Reading, request: Request) -> Page:
    """A feature: definition, window, distribution; and a form to fetch a key."""
    catalogue = reading.catalogue()
    found = _group(catalogue, request.get("group"))
    name = request.get("name")
    if name not in found.names:
        raise Absent(f"Group {short(found.name)!r} has no feature {short(name)!r}.")
    number = found.names.index(name)
    one = found.features[number]
    given = {
        key.removeprefix(KEY): value for key, value in request.query.items() if key.startswith(KEY)
    }
    made, failure = _fetched(reading, found, number, given, request.get("at").strip())
    context = {
        "group": found,
        "feature": one,
        "name": name,
        "type": found.types[number],
        "text": feature_text(one),
        "says": window_says(one.window),
        "window": window_drawing(one.window, found, now_millis()),
        "catalogue": catalogue,
        "attention": _about(reading, catalogue, found.ref),
        "joins": catalogue.joins_of.get(found.name, ()),
        "distribution": _distributions.of(
            reading.looking.store, _tables(reading, catalogue, found, one.name)
        ),
        "given": given,
        "at": request.get("at"),
        "explained": made,
        "failure": failure,
        "KEY": KEY,
        "key_types": ()
        if found.current is None
        else tuple(zip(found.keys, found.current.served.layout.key_types, strict=True)),
        "cells": None if made is None else cell_drawing(made),
        "reports": _reported(reading, catalogue, found, one.name),
    }
    return Page("feature.html", context)


def _fetched(
    reading: Reading, group: Group, number: int, given: dict[str, str], at: str
) -> tuple[Explained | None, str | None]:
    if not given or group.current is None:
        return None, None
    try:
        key, missing = read_key(group, given, typed)
        if missing:
            return None, f"give {', '.join(missing)}, too"
        time = None if not at else millis(at, "the time")
        project = reading.looking.project
        return explain(project.records, project.fetcher, group, number, key, time), None
    except WindrowError as error:
        return None, str(error)


def _tables(
    reading: Reading, catalogue: Catalogue, group: Group, feature: str
) -> list[tuple[str, str, str]]:
    """Tables that may have values of a feature: (folder, column, column of times)."""
    found = []
    for name in (*catalogue.joins_of.get(group.name, ()), group.name):
        versions = reading.looking.store.beneath(f"served/{name}")
        column = feature if name == group.name else f"{group.name}_{feature}"
        if versions.is_there():
            found += [
                (f"served/{name}/{version}", column, "_log_at")
                for version in versions.folders()
                if version != "counts"
            ]
    for name in catalogue.joins_of.get(group.name, ()):
        join = catalogue.joins[name].definition
        if join is not None:
            for joined in join.all_groups:
                if joined.group.name == group.name:
                    column = f"{joined.prefix or group.name}_{feature}"
                    found.append((f"results/{name}", column, join.left.time))
    return found


def _reported(
    reading: Reading, catalogue: Catalogue, group: Group, feature: str
) -> list[tuple[Any, Any]]:
    """The reports of consistency in which a feature is."""
    names = {group.name, *catalogue.joins_of.get(group.name, ())}
    found = []
    for report in reading.reports():
        if report.name in names:
            for one in report.features:
                if one.name in (feature, f"{group.name}_{feature}"):
                    found.append((report, one))
    return found[:8]


def window_drawing(window: Window, group: Group, now: int) -> dict[str, Any]:
    """A window on a time line: where it begins and ends, for a query at its right end."""
    lifetime = window.kind is WindowKind.LIFETIME
    start, end = (0, now) if lifetime else (int(t) for t in _bounds(window, now))
    span = max(now - start, 1)
    margin = 0.12 * span
    low, high = start - margin, now + margin
    scale = 1000 / (high - low)
    hops = []
    if not lifetime and window.kind is not WindowKind.SLIDING and window.hop:
        count = int(span / window.hop) + 1
        if count <= 96:
            hops = [(start + i * window.hop - low) * scale for i in range(count + 1)]
            hops = [x for x in hops if x <= (now - low) * scale + 0.5]
    return {
        "lifetime": lifetime,
        "start": start,
        "end": end,
        "now": now,
        "x0": 0 if lifetime else (start - low) * scale,
        "x1": (end - low) * scale,
        "xq": (now - low) * scale,
        "hops": hops,
    }


def _bounds(window: Window, now: int) -> Sequence[int]:
    import numpy as np

    return [int(one[0]) for one in window.bounds(np.array([now]))]


def cell_drawing(found: Explained) -> dict[str, Any]:
    """Cells or rows on a time line, from the oldest that is known to the time of the query."""
    times = [one.start for one in found.cells if one.start is not None]
    times += [one.time for one in found.rows]
    if not times:
        return {"marks": [], "x0": 0, "x1": 0}
    low, high = min(min(times), found.start or min(times)), max(found.at, max(times) + 1)
    span = max(high - low, 1)
    scale = 960 / span

    def x(time: int) -> float:
        return 20 + (time - low) * scale

    most = max((one.rows or 1 for one in found.cells), default=1)
    marks = [
        {
            "x": x(one.start),
            "height": 8 + 34 * (one.rows or 1) / most,
            "inside": one.inside,
            "title": f"{one.rows or 1} rows",
        }
        for one in found.cells
        if one.start is not None
    ]
    marks += [
        {"x": x(one.time), "height": 28, "inside": one.inside, "title": f"{one.diff:+d}"}
        for one in found.rows
    ]
    start = low if found.start is None else found.start
    return {"marks": marks[:400], "x0": x(start), "x1": x(found.end), "low": low, "high": high}


def _group(catalogue: Catalogue, name: str) -> Group:
    found = catalogue.groups.get(catalogue.named(name))
    if found is None:
        raise Absent(f"There is no group {short(name)!r} in the project.")
    return found


def _about(reading: Reading, catalogue: Catalogue, ref: Ref) -> list[Any]:
    return [one for one in reading.attention(catalogue) if one.concerns(ref)][:12]
