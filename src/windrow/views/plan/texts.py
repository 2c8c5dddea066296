"""Texts of plans and names of stored columns: the same in every process, and for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

EVERYTHING = "_all"  # the key of what has none

ID = re.compile(r"#(\d+)L?")
# Names in which Spark puts a number that differs from one process to the next.
_NUMBERED = re.compile(r"(\blambda \w+?|\b_gen_alias|\b_common_expr|\b_we|\b_w)_?\d+(?=#|\b)")
# Where in its query an expression stands, which some of Spark's print with the query's text.
_CONTEXT = re.compile(
    r",? ?SQLQueryContext\(.*?\),(?:None|Some\([^()]*\)),(?:None|Some\([^()]*\))\)", re.S
)


def _place(places: dict[str, int], id: str) -> str:
    """A column by its place among the inputs; one that is new, by when it is first seen."""
    if id not in places:
        places[id] = len(places)
    return f"#{places[id]}"


def numbered(text: str, places: dict[str, int]) -> str:
    """A text in which columns are known by their places, the same in every process."""
    return ID.sub(lambda m: _place(places, m[1]), _NUMBERED.sub(r"\1", _CONTEXT.sub("", text)))


def plain(text: str) -> str:
    """An expression for people: without the identities of its columns."""
    return ID.sub("", _NUMBERED.sub(r"\1", _CONTEXT.sub("", text)))


def unique(names: Sequence[str]) -> list[str]:
    """Names for stored columns: none twice, none that means something else, none empty."""
    taken: set[str] = {"_time", "_diff", "_hash", "_prefix", EVERYTHING}
    out = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:60] or "column"
        found, n = plain, 2
        while found.lower() in taken:
            found, n = f"{plain}_{n}", n + 1
        taken.add(found.lower())
        out.append(found)
    return out
