"""Expressions in Spark SQL: each gives one value for each row, and of that row alone.

A generator makes several rows of one, an aggregate one row of many, and a window function looks at
other rows, which a run that reads only new files does not see. All are refused by name. Rows of a
source are kept, so its expressions may not look into other tables either: nobody would know when
those change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windrow.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_SUBQUERY = re.compile(r"\bSELECT\s+\S|\(\s*VALUES\s*[(\d'\"]|\(\s*TABLE\s+\w", re.IGNORECASE)
_WINDOWING = re.compile(r"\b((?:session_)?window)\s*\(", re.IGNORECASE)
_REFUSED = (
    "UNSUPPORTED_GENERATOR",
    "INVALID_WHERE_CONDITION",
    "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE",
)


def has_subquery(text: str) -> bool:
    """Whether an expression looks into a table.

    >>> has_subquery("id IN (SELECT id FROM banned)"), has_subquery("label = '(SELECT 1)'")
    (True, False)
    """
    return _SUBQUERY.search(_QUOTED.sub("''", text)) is not None


def refuse_subquery(text: str | None, what: str) -> None:
    if text is not None and has_subquery(text):
        raise DefinitionError(
            f"{what}: {text!r} has a subquery, and rows that were ingested would not follow what "
            "it reads; join the tables beforehand, in a view or a DataFrame"
        )


def not_by_row(text: str, what: str, name: str | None = None) -> DefinitionError:
    """The error for an expression that is more than a function of one row."""
    culprit = "it" if name is None else name
    return DefinitionError(
        f"{what}: {text!r} does not give one value for each row, from that row alone: {culprit} is "
        "an aggregate, a window function, or makes several rows of one. Compute it beforehand, in "
        "a view or a DataFrame"
    )


def check_by_row(frame: DataFrame, texts: Sequence[str], what: str) -> None:
    """Raise unless every expression over the columns of `frame` is a function of one row.

    Spark knows: in a condition it allows nothing else. Whatever else is wrong with an expression
    is not said here.
    """
    from pyspark.sql import functions as F  # noqa: N812

    for text in texts:
        windowing = _WINDOWING.search(_QUOTED.sub("''", text))
        if windowing is not None:  # Spark makes more of it than a function of the row
            raise not_by_row(text, what, windowing[1])
        try:
            frame.where(F.expr(text).isNull()).schema  # noqa: B018  forces Spark to check it
        except Exception as error:
            condition = str(getattr(error, "getCondition", lambda: None)())
            if condition.startswith(_REFUSED):
                raise not_by_row(text, what, _culprit(error)) from error


def _culprit(error: Any) -> str | None:
    """The part of an expression that Spark complains about."""
    found = error.getMessageParameters() or {}
    return found.get("expressionList")
