"""Definitions as Python says them: groups, features, sources and windows, for people."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from windrow.algebra.aggregation import Aggregation, Feature
from windrow.algebra.windows import Window, WindowKind
from windrow.sources.definitions import Source
from windrow.time import parse_length

_SECRETS = ("stream",)


def aggregation_text(one: Aggregation, window: Window | None = None) -> str:
    """An aggregation, with all of its windows or one of them.

    >>> from windrow import agg
    >>> aggregation_text(agg.count("view_id").over("7d").by("category"))
    'agg.count("view_id").over("7d").by("category")'
    """
    name, *parameters = one.function.identity
    given = ", ".join([f'"{one.column}"', *(repr(value) for value in parameters)])
    text = f"agg.{name}({given})"
    for each in one.windows if window is None else (window,):
        text += _over(each)
    if one.condition is not None:
        text += f".where({one.condition!r})"
    if one.bucket is not None:
        text += f'.by("{one.bucket}")'
    if one.alias is not None:
        text += f'.named("{one.alias}")'
    return text


def feature_text(feature: Feature) -> str:
    """A feature: its aggregation in its own window."""
    return aggregation_text(feature.aggregation, feature.window)


def _over(window: Window) -> str:
    if window.kind is WindowKind.LIFETIME:
        return ""
    kind = "" if window.kind is WindowKind.SAWTOOTH else f', kind="{window.kind.value}"'
    return f'.over("{window.text}"{kind})'


def window_says(window: Window) -> str:
    """What counts, in words."""
    hop = _hop(window.hop)
    match window.kind:
        case WindowKind.LIFETIME:
            return "everything before the query"
        case WindowKind.SLIDING:
            return f"the {window.text} before the query"
        case WindowKind.HOPPING:
            return f"{window.text}, from and to a multiple of {hop}"
        case WindowKind.SAWTOOTH:
            return f"{window.text} and up to {hop} more before the query, from a multiple of {hop}"


def _hop(milliseconds: int) -> str:
    for unit in ("d", "h", "m", "s"):
        size = parse_length(f"1{unit}")
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def source_facts(source: Source) -> list[tuple[str, str]]:
    """What a source says of itself. Of a stream only its kind: its options may have secrets."""
    found = [("kind", type(source).__name__)]
    for one in fields(source):  # type: ignore[arg-type]
        given: Any = getattr(source, one.name)
        if one.name == "name" or given is None or given == one.default:
            continue
        if one.name in _SECRETS:
            found.append((one.name, type(given).__name__))
        elif isinstance(given, str | os.PathLike):
            found.append((one.name, str(getattr(given, "written", os.fspath(given)))))
        elif isinstance(given, dict | list | tuple | int | float | bool):
            found.append((one.name, str(given)))
        else:
            found.append((one.name, f"a {type(given).__name__}"))
    return found
