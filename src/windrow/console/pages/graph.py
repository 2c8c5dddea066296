"""Lineage as a drawing: all of a small project, of a large one what is near a chosen thing."""

from __future__ import annotations

from windrow.console.lineage import MOST, health_of
from windrow.console.pages.reading import Reading
from windrow.console.requests import Absent, Page, Request
from windrow.console.text import short

_LISTED = 60


def graph(reading: Reading, request: Request) -> Page:
    """The drawing, and an index to choose from."""
    catalogue = reading.catalogue()
    with_arrangements = request.get("arrangements") != "no"
    whole = reading.graph(catalogue, arrangements=with_arrangements)
    attention = reading.attention(catalogue)
    health = health_of(attention)
    chosen = request.get("of")
    if chosen and chosen not in whole.nodes:
        raise Absent(f"Nothing in the lineage is called {short(chosen)}.")
    start = chosen
    if not chosen and len(whole.nodes) > MOST:
        # Of a large project what needs attention is looked at first, or else what is used most.
        uses: dict[str, int] = {}
        for one, _ in whole.edges:
            uses[one] = uses.get(one, 0) + 1
        worst = next((one.about.id for one in attention if one.about.id in whole.nodes), None)
        start = worst or max(uses, key=lambda id: uses[id], default=next(iter(whole.nodes)))
    shown = whole.near(start) if start and (chosen or len(whole.nodes) > MOST) else whole
    drawn = shown.drawn()
    wanted = request.get("q")[:200].strip().lower()
    index = [node for node in whole.nodes.values() if wanted in node.title.lower()]
    index.sort(key=lambda node: (not node.title.lower().startswith(wanted), node.title.lower()))
    context = {
        "drawn": drawn,
        "places": {box.id: number for number, box in enumerate(drawn.boxes)},
        "nodes": shown.nodes,
        "health": health,
        "chosen": start,
        "chosen_node": whole.nodes.get(start) if start else None,
        "total": len(whole.nodes),
        "index": index[:_LISTED],
        "index_total": len(index),
        "q": request.get("q")[:200],
        "with_arrangements": with_arrangements,
    }
    return Page("lineage.html", context)
