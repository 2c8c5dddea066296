"""From text to statements: the one place that talks to Spark's parser.

The few statements about materialized views that Spark does not know are read by tokens.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.errors import UnsupportedSQL
from windrow.spark.plans import active
from windrow.spark.reading import Reading
from windrow.spark.schemas import quoted
from windrow.spark.sql_errors import sql_errors
from windrow.spark.statements import (
    CreateView,
    Drop,
    Explain,
    Refresh,
    Show,
    ShowArrangements,
    Statement,
)
from windrow.spark.tokens import Token, pieces, tokens

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse(session: SparkSession, text: str) -> Statement:
    """The one statement in `text`; a semicolon may end it."""
    found = pieces(text)
    if len(found) > 1:
        line, column = _line_column(text, found[1].start)
        raise UnsupportedSQL(
            f"line {line}, column {column}: there is more than one statement; run them one by one, "
            "or all with `windrow sql`",
            line=line,
            column=column,
        )
    # Without the semicolon; what is before stays, so that places in the text are the user's.
    cut = text if not found else text[: found[0].start + len(found[0].text)]
    own = _own(cut)
    if own is not None:
        return own
    unlisted, columns = _without_columns(cut)
    readable = for_spark(cut)
    with sql_errors(), active(session):
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(readable)
    statement = Reading(cut, replace=readable != unlisted).statement(plan)
    return _with_columns(statement, columns) if columns else statement


def for_spark(text: str) -> str:
    """A statement as Spark can read it: what it does not know is blank, all else in its place."""
    parsed, _ = _without_columns(text)
    return _or_replace(parsed) or _altered(parsed) or parsed


def _without_columns(text: str) -> tuple[str, tuple[str, ...]]:
    """CREATE MATERIALIZED VIEW v (a, b) AS without its list of columns, and those.

    Spark wants types in such a list. Everything else stays in its place.

    >>> _without_columns("CREATE MATERIALIZED VIEW v (a, `b c`) AS SELECT 1, 2")
    ('CREATE MATERIALIZED VIEW v            AS SELECT 1, 2', ('a', 'b c'))
    """
    found = iter(tokens(text))
    head = list(itertools.islice(found, 12))
    words = [token.word for token in head]
    if "CREATE" not in words[:3] or "VIEW" not in words:
        return text, ()
    name = words.index("VIEW") + 1
    name += 3 if words[name : name + 3] == ["IF", "NOT", "EXISTS"] else 0
    rest = itertools.chain(head[name + 1 :], found)
    opening = next(rest, None)
    if "MATERIALIZED" not in words or opening is None or opening.text != "(":
        return text, ()
    listed = []
    for closing in rest:
        if closing.text == ")":
            break
        listed.append(closing)
    else:
        return text, ()
    names = [token.name for token in listed[::2]]
    if len(listed) % 2 == 0 or None in names or any(one.text != "," for one in listed[1::2]):
        return text, ()  # types, which Spark has something to say of
    start, end = opening.start, closing.start + 1
    blank = re.sub(r"\S", " ", text[start:end])
    return text[:start] + blank + text[end:], tuple(str(name) for name in names)


def _with_columns(statement: Statement, columns: tuple[str, ...]) -> Statement:
    """A view, or the explanation of one, whose columns are named by a list."""

    def named(view: CreateView) -> CreateView:
        names = ", ".join(quoted(name) for name in columns)
        text = f"SELECT * FROM (\n{view.sql}\n) AS {quoted(view.name)}({names})"
        return replace(view, sql=text, columns=columns)

    match statement:
        case Explain(view=CreateView() as view):
            return replace(statement, view=named(view))
        case CreateView():
            return named(statement)
    return statement


def _own(text: str) -> Statement | None:
    """DROP, REFRESH, SHOW and EXPLAIN of materialized views."""
    match list(tokens(text)):
        case [Token(word="DROP"), Token(word="MATERIALIZED"), Token(word="VIEW"), *rest]:
            exists = [token.word for token in rest[:2]] == ["IF", "EXISTS"]
            return Drop(text, "view", _name(text, rest[2 if exists else 0 :]), exists)
        case [Token(word="REFRESH"), Token(word="MATERIALIZED"), Token(word="VIEW"), *rest]:
            return Refresh(text, _name(text, rest))
        case [Token(word="SHOW"), Token(word="MATERIALIZED"), Token(word="VIEWS")]:
            return Show(text, "views")
        case [
            Token(word="SHOW"),
            Token(word="MATERIALIZED"),
            Token(word="VIEWS"),
            Token(word="LIKE"),
            Token(kind="string") as pattern,
        ]:
            return Show(text, "views", pattern.text[1:-1])
        case [Token(word="SHOW"), Token(word="ARRANGEMENTS"), *rest]:
            return _arrangements(text, rest)
        case [Token(word="EXPLAIN"), *rest]:
            mode = "simple"
            if len(rest) > 1 and rest[0].word in ("EXTENDED", "COST", "ANALYZE"):
                mode, rest = rest[0].word.lower(), rest[1:]
            if [token.word for token in rest[:2]] == ["MATERIALIZED", "VIEW"]:
                return Explain(text, mode, name=_name(text, rest[2:]))
            if len(rest) == 1 and rest[0].name is not None:
                return Explain(text, mode, name=rest[0].name)
            if mode == "analyze":
                _name(text, rest)  # of which there is more than a name
    return None


def _arrangements(text: str, rest: list[Token]) -> ShowArrangements:
    """SHOW ARRANGEMENTS [FROM view] [LIKE 'pattern'] [EXACT]."""
    view = pattern = None
    if rest and rest[0].word in ("FROM", "IN"):
        view = _name(text, rest[1:2])
        rest = rest[2:]
    if rest and rest[0].word == "LIKE":
        rest = rest[1:]
    if rest and rest[0].kind == "string":
        pattern, rest = rest[0].text[1:-1], rest[1:]
    exact = [token.word for token in rest] == ["EXACT"]
    if rest and not exact:
        line, column = _line_column(text, rest[0].start)
        raise UnsupportedSQL(
            f"line {line}, column {column}: write SHOW ARRANGEMENTS [FROM view] [LIKE 'pattern'] "
            "[EXACT]",
            line=line,
            column=column,
        )
    return ShowArrangements(text, view, pattern, exact)


def _or_replace(text: str) -> str | None:
    """CREATE OR REPLACE MATERIALIZED VIEW without OR REPLACE, everything else in its place."""
    found = []
    for token in tokens(text):
        found.append(token)
        if len(found) == 5:
            break
    words = [token.word for token in found]
    if words != ["CREATE", "OR", "REPLACE", "MATERIALIZED", "VIEW"]:
        return None
    start, end = found[1].start, found[3].start
    return text[:start] + re.sub(r"\S", " ", text[start:end]) + text[end:]


def _altered(text: str) -> str | None:
    """ALTER MATERIALIZED VIEW without MATERIALIZED, everything else in its place.

    >>> _altered("ALTER MATERIALIZED VIEW v UNSET TBLPROPERTIES ('online')")
    "ALTER              VIEW v UNSET TBLPROPERTIES ('online')"
    """
    found = list(itertools.islice(tokens(text), 3))
    if [token.word for token in found] != ["ALTER", "MATERIALIZED", "VIEW"]:
        return None
    start, end = found[1].start, found[2].start
    return text[:start] + re.sub(r"\S", " ", text[start:end]) + text[end:]


def _name(text: str, rest: list[Token]) -> str:
    """The name that is all that is left of a statement."""
    if len(rest) == 1 and rest[0].name is not None:
        return rest[0].name
    at = rest[min(1, len(rest) - 1)].start if rest else len(text)
    line, column = _line_column(text, at)
    raise UnsupportedSQL(
        f"line {line}, column {column}: one name is expected here; write the name of a view, in "
        "backquotes if there is anything but letters, digits and underscores in it",
        line=line,
        column=column,
    )


def _line_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
