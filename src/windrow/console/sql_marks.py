"""SQL in pieces, each with what it is: enough to show it in colours."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 20_000  # characters that are coloured
_WORDS = """
    all and any anti as asc between by case cast create cross cube date day delete desc distinct
    else end except exists extract false filter first following for from full group grouping having
    hour in inner insert intersect interval into is join last lateral left like limit materialized
    minute month natural not null nulls offset on or order outer over partition preceding range
    recursive right rlike rollup row rows second select semi set sets table tablesample then
    timestamp true unbounded union unique update using values view when where window with year
"""
_KEYWORDS = frozenset(_WORDS.split())
_PIECES = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<number>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)
      | (?P<word>[A-Za-z_]\w*)(?P<call>(?=\s*\())?
    """,
    re.DOTALL | re.VERBOSE,
)


def marked(text: str) -> Iterator[tuple[str, str]]:
    """Pieces of SQL: (kind, text). Together they are the text.

    >>> list(marked("SELECT a"))
    [('keyword', 'SELECT'), ('', ' '), ('', 'a')]
    """
    done = 0
    for found in _PIECES.finditer(text[:MOST]):
        if found.start() > done:
            yield "", text[done : found.start()]
        kind = found.lastgroup or ""
        if kind == "word":
            kind = ""
        if found["word"] is not None and found["word"].lower() in _KEYWORDS:
            kind = "keyword"
        yield kind, found[0]
        done = found.end()
    if done < len(text):
        yield "", text[done:]
