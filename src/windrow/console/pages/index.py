"""Lists of everything, some at a time, with a search: relations, features, and all by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from windrow.console.catalogue import Catalogue
from windrow.console.lineage import health_of
from windrow.console.pages.overview import freshness
from windrow.console.pages.reading import Reading
from windrow.console.refs import Ref, link
from windrow.console.requests import Page, Request
from windrow.console.text import short

AT_ONCE = 50
T = TypeVar("T")


def relations(reading: Reading, request: Request) -> Page:
    """Tables and sources."""
    catalogue = reading.catalogue()
    sources, _, _ = freshness(catalogue, health_of(reading.attention(catalogue)))
    known = {one.ref for one in sources}
    more = [Ref("source", name) for name in catalogue.sources]
    context = _listed(request, sources, lambda one: one.ref.name)
    context |= {"title": "Sources and tables", "page": "relations", "about": "sources and tables"}
    context["others"] = [ref for ref in more if ref not in known][:AT_ONCE]
    return Page("freshness.html", context)


def views(reading: Reading, request: Request) -> Page:
    """Views."""
    catalogue = reading.catalogue()
    _, found, _ = freshness(catalogue, health_of(reading.attention(catalogue)))
    context = _listed(request, found, lambda one: one.ref.name)
    context |= {"title": "Views", "page": "views", "about": "views", "others": []}
    return Page("freshness.html", context)


def features(reading: Reading, request: Request) -> Page:
    """Features, by group; and joins."""
    catalogue = reading.catalogue()
    context = _listed(
        request, catalogue.features, lambda one: f"{one[0].name} {one[0].names[one[1]]}"
    )
    wanted = request.get("q").lower()
    context["joins"] = [n for n in sorted(catalogue.joins) if wanted in n.lower()][:AT_ONCE]
    context["groups"] = [
        one for name, one in sorted(catalogue.groups.items()) if wanted in name.lower()
    ][:AT_ONCE]
    context |= {"page": "features", "catalogue": catalogue}
    return Page("features.html", context)


def search(reading: Reading, request: Request) -> Page:
    """Everything whose name has what is searched for."""
    catalogue = reading.catalogue()
    context = _listed(request, reading.everything(catalogue, _everything), lambda one: one[0])
    return Page("search.html", context | {"page": "search"})


def _everything(catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """Name, kind and address of everything."""
    for one in catalogue.relations.values():
        yield one.name, one.kind, one.ref.href
    for name in catalogue.sources:
        yield name, "source", Ref("source", name).href
    for name in catalogue.joins:
        yield name, "join", Ref("join", name).href
    for group in catalogue.groups.values():
        yield group.name, "group", group.ref.href
    for group, number in catalogue.features:
        feature = group.names[number]
        yield feature, f"feature of {group.name}", link("feature", group=group.name, name=feature)


def _listed(request: Request, every: Iterable[T], name: Any) -> dict[str, Any]:
    """One page of a list: what matches the search, by name where that begins with it."""
    wanted = request.get("q")[:200].strip()
    lower = wanted.lower()
    found: Sequence[T] = [one for one in every if lower in name(one).lower()]
    if wanted:
        found = sorted(found, key=lambda one: not name(one).lower().startswith(lower))
    start = request.number("from", 0, most=max(0, len(found) - 1))
    start -= start % AT_ONCE
    return {
        "found": found[start : start + AT_ONCE],
        "total": len(found),
        "start": start,
        "at_once": AT_ONCE,
        "q": wanted,
        "shown_q": short(wanted, 60),
    }
