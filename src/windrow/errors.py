"""The one family of exceptions that Windrow raises.

Every message says what failed and where, what would be valid, and what to do next. Catch
`WindrowError` for all of them, or one of the classes below for one situation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any


class WindrowError(Exception):
    """Anything that Windrow refuses or could not do."""


class SchemaError(WindrowError):
    """Columns or types that do not fit."""


class DataError(WindrowError):
    """Rows that break a rule: a null time, a time outside its batch, an overflowing count."""


class OptionError(WindrowError):
    """An argument with a value that has no meaning here."""


class DefinitionError(WindrowError):
    """A feature, source, window or join that is not well formed."""


class ShardNotFoundError(WindrowError):
    """There is no shard at this URI."""


class ShardRetiredError(ShardNotFoundError):
    """A shard that is of no use any more, and about to be removed."""


class ShardExistsError(WindrowError):
    """There is a shard at this URI already."""


class UpperMismatchError(WindrowError):
    """An append whose `lower` is not the shard's `upper`: another writer was first."""

    def __init__(self, message: str, *, upper: int) -> None:
        super().__init__(message)
        self.upper = upper

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled without their keyword arguments.
        return partial(type(self), upper=self.upper), self.args


class CommitConflictError(WindrowError):
    """Other writers kept winning the race for the next commit."""


class TimeRangeError(WindrowError):
    """A read at a time that the shard does not hold, or a frontier that would move back."""


class StorageError(WindrowError):
    """A file that is missing, unreadable, or not what the log says it is."""


class StorageUnavailableError(StorageError):
    """A store that cannot be used right now: a full disk, missing rights, a lost connection.

    Nothing is wrong with what is stored; once the cause is gone, the same can be done again.
    """


class NotServedError(WindrowError):
    """A name that nothing is served under."""


class RequestError(WindrowError):
    """A request for features that cannot be answered as it is: a wrong key, type or time."""


class StaleError(WindrowError):
    """Features that are older than their group allows, and so are not served."""


class SparkLostError(WindrowError):
    """A process of Spark that has ended: a task, an executor, or Spark itself.

    Nothing is wrong with what is stored; the same can be done again.
    """


class SQLError(WindrowError):
    """A statement that Spark cannot parse or analyse, or that fails as it runs.

    `condition` is Spark's name of the error; `line` and `column` count from 1, where known.
    """

    def __init__(
        self,
        message: str,
        *,
        condition: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.condition, self.line, self.column = condition, line, column


class UnsupportedSQL(WindrowError):  # noqa: N818 (as users know it)
    """SQL that Spark understands and Windrow does not do, with its place in the text."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class RelationNotFoundError(WindrowError):
    """There is no table, source or view of this name."""


class RelationExistsError(WindrowError):
    """There is a table, source or view of this name already."""


def to_json(error: WindrowError) -> str:
    """An error as text, for another process: its class, its arguments and what else it knows."""
    kind = next(c.__name__ for c in type(error).__mro__ if globals().get(c.__name__) is c)
    return json.dumps([kind, error.args, vars(error)], default=str)


def from_json(text: str) -> WindrowError:
    """The error that `to_json` has written.

    >>> error = from_json(to_json(UpperMismatchError("another was first", upper=7)))
    >>> error, error.upper
    (UpperMismatchError('another was first'), 7)
    """
    kind, arguments, attributes = json.loads(text)
    found: type[WindrowError] = globals()[kind]
    error = found.__new__(found, *arguments)
    error.args = tuple(arguments)
    vars(error).update(attributes)
    return error


def unknown_column(name: str, known: Iterable[str], where: str) -> SchemaError:
    """The error for a column that does not exist, with the nearest names that do."""
    names = list(known)
    close = get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {names}"
    return SchemaError(f"{where}: there is no column {name!r}; {hint}")
