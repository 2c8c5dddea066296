"""The log of a server: a line of JSON for each event, on standard error.

Lines say what happened, never what was in a header or a key.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import traceback
from typing import Any, TextIO

import msgspec

_LEVELS = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "error",
}


class Log:
    """Writes lines; `requests` says whether one is wanted for each request."""

    def __init__(self, *, requests: bool = False, out: TextIO | None = None) -> None:
        self.requests = requests
        self._out = out

    def write(self, level: str, event: str, **fields: Any) -> None:
        """One line: the time, the level, the event and what is known of it."""
        line = {"time": _now(), "level": level, "event": event, "pid": os.getpid(), **fields}
        # A log that cannot be written must not fail a request.
        with contextlib.suppress(OSError, ValueError):
            print(msgspec.json.encode(line).decode(), file=self._out or sys.stderr, flush=True)

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """A line for something unexpected, with where it came from."""
        shown = "".join(traceback.format_exception(error))
        self.write("error", event, error=f"{type(error).__name__}: {error}", trace=shown, **fields)


class Handler(logging.Handler):
    """What uvicorn has to say, in the same form."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """A line for a record."""
        fields = {}
        if record.exc_info and record.exc_info[1] is not None:
            fields["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        level = _LEVELS.get(record.levelno, "info")
        self._log.write(level, "server", message=record.getMessage().strip(), **fields)


def _now() -> str:
    seconds = time.time()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
