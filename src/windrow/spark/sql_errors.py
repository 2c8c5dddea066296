"""What Spark says of a statement, as errors of ours: its own words and place, no Java stack."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from windrow.errors import SQLError, WindrowError
from windrow.spark.errors import known_error

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)")


def sql_error(error: Exception) -> WindrowError | None:
    """An error of Spark as one of ours; None if it is not about a statement or its rows."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if not isinstance(error, PySparkException):
        return _cleaned(known_error(error))
    if not isinstance(error, AnalysisException | ParseException):
        known = _cleaned(known_error(error))
        if known is not None:
            return known
        if _condition(error) is None:
            return None
    line, column = _place(error)
    where = "" if line is None else f"line {line}, column {column}: "
    return SQLError(where + _message(error), condition=_condition(error), line=line, column=column)


@contextmanager
def sql_errors() -> Iterator[None]:
    """Raises what Spark says of a statement as our own error."""
    try:
        with quiet():
            yield
    except WindrowError as error:
        _cleaned(error)
        raise
    except Exception as error:
        found = sql_error(error)
        if found is None:
            raise
        raise found from None  # its cause is a Java stack


@contextmanager
def quiet() -> Iterator[None]:
    """While it is entered, PySpark does not log each error once more, with its Java stack."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _cleaned(known: WindrowError | None) -> WindrowError | None:
    """An error without the number of its state, which follows what our own checks say."""
    if known is not None and known.args:
        known.args = (re.sub(r"\.? SQLSTATE: \w{5}", "", str(known.args[0])), *known.args[1:])
    return known


def _condition(error: Any) -> str | None:
    found = error.getCondition()
    return None if found is None else str(found)


def _message(error: Any) -> str:
    """Spark's message: without the plan, the text of the statement and the state's number."""
    said = str(error.getMessage() or error)
    lines = said.strip().split("\n== SQL", 1)[0]
    lines = re.sub(r" SQLSTATE: \w{5}", "", lines)
    return re.sub(r"; line \d+ pos \d+;?.*", "", lines, flags=re.DOTALL).strip()


def _place(error: Any) -> tuple[int | None, int | None]:
    found = _PLACE.search(str(error))
    if found is not None:
        line, at = (found[1], found[2]) if found[1] else (found[3], found[4])
        return int(line), int(at) + 1
    return None, None
