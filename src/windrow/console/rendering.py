"""Pages as HTML: Jinja2, where everything is escaped."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import islice
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from windrow.console import assets, text
from windrow.console.refs import ROOT, Ref, known_as, link
from windrow.console.requests import Page, Request
from windrow.console.sql_marks import marked
from windrow.time import now_millis

THEMES = ("light", "dark")


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("windrow.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "visible": text.visible,
        "short": text.short,
        "moment": text.moment,
        "machine": text.machine_moment,
        "length": text.length,
        "size": text.size,
        "share": text.share,
        "rounded": text.rounded,
        "value": text.value,
        "count": lambda number: f"{number:,}",
        "sql": marked,
        "count_of": len,
        "length_of": len,
        "known_as": known_as,
        "quoted": lambda given: quote(given, safe=""),
    }
    found.filters |= filters
    found.globals |= {
        "root": ROOT,
        "link": link,
        "Ref": Ref,
        "asset": lambda name: f"{ROOT}/static/{assets.address(name)}",
        "INLINE": text.INLINE,
        "SHORT": text.SHORT,
        "zip": zip,
        "first": lambda several, most: list(islice(several, most)),
    }
    return found


def render(page: Page, request: Request, *, theme: str = "", signed_in: bool = False) -> str:
    """A page for a visitor, in a theme: light, dark, or as the browser says."""
    context: dict[str, Any] = {
        "request": request,
        "theme": theme if theme in THEMES else "",
        "signed_in": signed_in,
        "now": now_millis(),
        "here": link(request.path, **request.query),
    }
    return _environment().get_template(page.template).render(**context, **page.context)
