"""The overview: what needs attention, what is under way, and how fresh everything is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from windrow.console.catalogue import Catalogue
from windrow.console.consistency import Report
from windrow.console.pages.reading import Reading
from windrow.console.refs import Ref
from windrow.console.requests import Page, Request
from windrow.time import now_millis

MOST = 14  # lines of a list; the index has all of them


@dataclass(frozen=True)
class Fresh:
    """How fresh one thing is: the time that it is at, and in which state that leaves it."""

    ref: Ref
    kind: str
    time: int | None
    state: str  # "ok", "warn", "bad" or "off"
    says: str


def overview(reading: Reading, request: Request) -> Page:
    """The first page."""
    catalogue = reading.catalogue()
    attention = reading.attention(catalogue)
    levels = {ref.id: one.level for one in reversed(attention) for ref in (one.about, *one.also)}
    sources, views, groups = freshness(catalogue, levels)
    context = {
        "catalogue": catalogue,
        "attention": attention[:50],
        "more_attention": max(0, len(attention) - 50),
        "running": reading.running(catalogue),
        "lists": [
            ("Sources and tables", "relations", *_worst(sources)),
            ("Views", "views", *_worst(views)),
            ("Online groups", "features", *_worst(groups)),
        ],
        "counts": [
            ("sources", len(catalogue.sources) + len(catalogue.of_kind("source")), "relations"),
            ("tables", len(catalogue.of_kind("table")), "relations"),
            ("views", len(catalogue.of_kind("view")), "views"),
            ("groups", len(catalogue.groups), "features"),
            ("features", len(catalogue.features), "features"),
            ("joins", len(catalogue.joins), "features"),
        ],
        "ticks": [note for note in catalogue.notes if note.get("kind") == "tick"][:8],
        "reports": _newest(reading.reports()),
    }
    return Page("overview.html", context)


def freshness(
    catalogue: Catalogue, levels: dict[str, str]
) -> tuple[list[Fresh], list[Fresh], list[Fresh]]:
    """Of sources and tables, of views, and of online groups."""
    now = now_millis()
    sources = []
    for name in catalogue.sources:
        ref, state = Ref("source", name), catalogue.streams.get(name)
        if state is not None:
            level = levels.get(ref.id, "ok")
            sources.append(Fresh(ref, "stream", state.upper, level, f"{state.rows:,} rows"))
        elif catalogue.sources[name].stream is not None:
            sources.append(Fresh(ref, "stream", None, "off", "never ran"))
    for one in catalogue.of_kind("table", "source"):
        level = levels.get(one.ref.id, "ok")
        readers = len(catalogue.readers.get(one.name, ()))
        says = f"read by {readers} view{'' if readers == 1 else 's'}"
        sources.append(Fresh(one.ref, one.kind, one.changed_at, level, says))
    views = []
    for one in catalogue.of_kind("view"):
        waits = catalogue.waiting.get(one.name, ())
        level = levels.get(one.ref.id, "wait" if waits else "ok")
        says = f"waits for a tick: {', '.join(waits[:3])}" if waits else "up to date"
        views.append(Fresh(one.ref, "view", catalogue.ticked, level, says))
    groups = []
    for group in catalogue.groups.values():
        if group.current is None:
            says = "an upload is under way" if group.staged is not None else "not online"
            groups.append(Fresh(group.ref, "group", None, "off", says))
            continue
        level = levels.get(group.ref.id, "ok")
        says = "stale" if group.is_stale(now) else f"{len(group.features)} features"
        groups.append(Fresh(group.ref, "group", group.fresh_at, level, says))
    return sources, views, groups


def _worst(found: Iterable[Fresh]) -> tuple[list[Fresh], int, dict[str, int]]:
    """Those in the worst state first, up to a number; how many there are, and of which state."""
    order = {"bad": 0, "warn": 1, "wait": 2, "ok": 3, "off": 4}
    every = sorted(found, key=lambda one: (order[one.state], one.ref.name.lower()))
    states: dict[str, int] = {}
    for one in every:
        states[one.state] = states.get(one.state, 0) + 1
    return every[:MOST], len(every), states


def _newest(reports: Sequence[Report]) -> list[Report]:
    seen: dict[str, Report] = {}
    for one in reports:
        seen.setdefault(one.name, one)
    return list(seen.values())[:6]
