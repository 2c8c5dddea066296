"""Words of SQL, as far as statements have to be told apart before Spark parses them.

Spark's parser knows everything but a few statements about materialized views, and takes one
statement at a time. So text is cut into tokens: enough to see where a statement ends, whatever is
in its strings, quoted names and comments, and to read those few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
  | (?P<comment>/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>\w+)
  | (?P<end>;)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A piece of the text that is neither space nor comment."""

    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        """A keyword, in upper case; empty for everything else."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """The name that it stands for, if it is one."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text.

    >>> [token.text for token in tokens("SELECT 'a;b' -- ;\\n FROM `x;y`;")]
    ['SELECT', "'a;b'", 'FROM', '`x;y`', ';']
    """
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None
        kind = found.lastgroup or "other"
        if kind == "comment":
            at = _comment_end(text, at)
            continue
        if kind != "space":
            yield Token(kind, found[0], at)
        at = found.end()


def _comment_end(text: str, start: int) -> int:
    """Where a bracketed comment ends; they nest."""
    depth = 0
    for found in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return start + found.end()
    return len(text)


@dataclass(frozen=True)
class Piece:
    """A statement within a text; `ended` if a semicolon follows."""

    text: str
    start: int
    ended: bool


def pieces(text: str) -> list[Piece]:
    """The statements of a text, without the semicolons between them.

    >>> [one.text for one in pieces("SELECT 1; -- one; or two\\n ;; SELECT ';'")]
    ['SELECT 1', "SELECT ';'"]
    """
    found: list[Piece] = []
    start: int | None = None
    last = 0
    for token in tokens(text):
        if token.kind == "end":
            if start is not None:
                found.append(Piece(text[start:last], start, True))
                start = None
            continue
        if start is None:
            start = token.start
        last = token.start + len(token.text)
    if start is not None:
        found.append(Piece(text[start:last], start, False))
    return found
