"""Parts that were written, and wait for their commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from windrow.errors import StorageError, StorageUnavailableError
from windrow.shard.log import Log
from windrow.spark.tasks import WrittenFile


@contextmanager
def committing(log: Log, parts: Sequence[WrittenFile]) -> Iterator[None]:
    """A block that commits `parts`. If it fails, nothing is left of them.

    Unless the commit was made and only its answer was lost: a part that the log names stays. If an
    object store did not answer, the request may even be still on its way, so that nobody can tell;
    then the parts are left to vacuum.
    """
    try:
        yield
    except BaseException as error:
        if log.store.is_local or not isinstance(error, StorageUnavailableError):
            with suppress(StorageError):
                drop(log, parts)
        raise


def drop(log: Log, parts: Sequence[WrittenFile]) -> None:
    """Delete those of the parts that the log does not name."""
    log.refresh()
    named = {part.path for part in log.parts()}
    log.store.delete([part.path for part in parts if part.path not in named])
