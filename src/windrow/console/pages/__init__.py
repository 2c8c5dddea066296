"""The pages: each a function of what is read and of a request, by its name in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windrow.console.pages.feature import feature, group, join, source
from windrow.console.pages.graph import graph
from windrow.console.pages.index import features, relations, search, views
from windrow.console.pages.overview import overview
from windrow.console.pages.proof import consistency
from windrow.console.pages.reading import Reading
from windrow.console.pages.relation import relation, row, view
from windrow.console.pages.ticks import arrangements, failure, ticks, upkeep
from windrow.console.requests import Page, Request

PAGES: Mapping[str, Callable[[Reading, Request], Page]] = {
    "": overview,
    "lineage": graph,
    "views": views,
    "view": view,
    "relations": relations,
    "relation": relation,
    "row": row,
    "features": features,
    "feature": feature,
    "group": group,
    "join": join,
    "source": source,
    "consistency": consistency,
    "ticks": ticks,
    "failure": failure,
    "arrangements": arrangements,
    "search": search,
}
# What changes something: given the fields of a form, the address to go to afterwards.
ACTIONS: Mapping[str, Callable[[Reading, dict[str, str]], str]] = {"upkeep": upkeep}
