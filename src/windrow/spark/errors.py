"""What Spark says of bad data and unreadable files, as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.errors import (
    DataError,
    SparkLostError,
    StorageError,
    StorageUnavailableError,
    UnsupportedSQL,
    WindrowError,
)

# How Spark says that the process of a task is gone, while it ran or before it was used again.
_LOST_TASK = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure"
    r"|java\.io\.EOFException|java\.io\.IOException: (Broken pipe|Connection reset)"
    r"|java\.net\.SocketException"
)


def known_error(error: Exception) -> WindrowError | None:
    """What Spark says of an unreadable file, bad data or a process that is gone, as an error of
    ours; None for the rest."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(error, Py4JNetworkError | ConnectionError):
        return SparkLostError(
            f"Spark has ended, or does not answer ({type(error).__name__}: {error}). Nothing was "
            "committed; start it again, and repeat what was under way"
        )
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if "FAILED_READ_FILE" in text:
        at = text.index("[FAILED_READ_FILE")
        line = text[at:].splitlines()[0].strip()
        return StorageError(f"{line} Replace the file, or take it out of the folder")
    if "No space left on device" in text:  # in its own folder: our tasks report theirs themselves
        return StorageUnavailableError(
            "Spark ran out of space for temporary files. Free some in its folder, or name another "
            f"(spark.local.dir): {first}"
        )
    if "USER_RAISED_EXCEPTION" in text:  # one of our own checks, within an expression
        at = text.index("[USER_RAISED_EXCEPTION]")
        return DataError(text[at:].splitlines()[0].partition("] ")[2])
    # SQL's class of data exceptions: a failed cast, a division by zero, an overflow; and that of
    # subqueries that give several rows.
    found = re.search(r"\[[A-Z_]+(\.[A-Z_]+)*\][^\n]*SQLSTATE: 2[12]\w{3}", text)
    if found is not None:
        return DataError(_said(found[0]))
    state = getattr(error, "getSqlState", lambda: None)()
    if str(state).startswith(("21", "22")):
        return DataError(first)
    lost = _LOST_TASK.search(text)
    if lost is None:
        return None
    return SparkLostError(
        f"the process of a task has ended ({lost[0]}). Nothing was committed; repeat what was "
        "under way. If it ends again, it may need more memory"
    )


def _said(text: str) -> str:
    """What Spark says of data, without the advice to change a setting that is fixed here."""
    text = re.sub(r' If necessary set "?spark\.sql\.ansi\.enabled"? to [^.]*\.', "", text)
    return re.sub(r"\.? (SQLSTATE: \w{5})", r" (\1).", text)


@contextmanager
def known_errors() -> Iterator[None]:
    """Raises what `known_error` knows as our own error."""
    try:
        yield
    except Exception as error:
        known = known_error(error)
        if known is None:
            raise
        raise known from error


@contextmanager
def planning_errors() -> Iterator[None]:
    """Raises what is wrong within Spark's optimiser itself as UnsupportedSQL."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        first = str(error.java_exception.toString()).splitlines()[0]
        raise UnsupportedSQL(
            f"Spark itself fails to plan this query: {first}. Write it in another way"
        ) from error
