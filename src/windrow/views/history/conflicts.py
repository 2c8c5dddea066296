"""Which commits are refused, given what others have committed meanwhile.

A commit is based on a version of the history; the state may have moved on since. All of this is
decided by the state alone, and evaluated again whenever another record came first.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from windrow.errors import CommitConflictError, DataError, OptionError
from windrow.shard.log import LATEST
from windrow.spark.tasks import WrittenFile
from windrow.views.history.commits import WRITE, Commit
from windrow.views.history.pending import first_time, part_name
from windrow.views.history.state import Entry, State

Entries = Mapping[str, Entry]


def check(
    state: State,
    commit: Commit,
    based: int,
    time: int | None,
    reads: Collection[str],
    creating: Container[str],
) -> None:
    """Raise an error if `commit`, based on version `based`, cannot follow `state`.

    `time` is that of the history at `based`; None if it is not known any more.
    """
    if not 0 <= commit.time < LATEST:
        raise OptionError(f"a commit at {commit.time}; times are milliseconds since the epoch")
    if based > state.version:
        raise OptionError(f"expected={based}, and the history is at version {state.version}")
    if commit.kind == WRITE:
        _check_write(state, commit)
    else:
        _check_tick(state, commit, based, time)
    for id in reads:
        entry = state.collections.get(id)
        if id not in creating and (entry is None or entry.appended > based):
            what = "dropped" if entry is None else f"changed by record {entry.appended}"
            raise _conflict(f"collection {id}, which it has read at version {based}, was {what}")
    for id in commit.created:
        if id not in creating:
            raise OptionError(f"collection {id} was not created by this handle, or is committed")
    for id in commit.dropped:
        if id not in state.collections:
            raise _conflict(f"collection {id} was dropped by another process")
    for id, files in commit.appends.items():
        entry = Entry({}) if id in commit.created else state.collections.get(id)
        if entry is None:
            raise _conflict(f"collection {id} was dropped by another process")
        _check_batch(id, entry, commit, files)


def _check_write(state: State, commit: Commit) -> None:
    if commit.time <= state.time:
        raise _conflict(
            f"a write at {commit.time} came too late: another process has committed at {state.time}"
        )


def _check_tick(state: State, commit: Commit, based: int, time: int | None) -> None:
    if state.defined > based:
        raise _conflict(f"record {state.defined} is another tick or definition since {based}")
    reached = max(commit.time, commit.ticked or 0)
    seen = time is not None and (reached <= time or state.time == time)
    if (commit.appends or commit.ticked is not None) and state.version > based and not seen:
        raise _conflict(
            f"it says what there is at {reached}, and meanwhile another process has committed at "
            f"{state.time}"
        )
    if commit.ticked is not None and not state.ticked <= commit.ticked <= max(
        state.time, commit.time
    ):
        raise OptionError(
            f"a {commit.kind} moves the views from {state.ticked} to {commit.ticked}; they move "
            f"forward, and not beyond the newest commit ({max(state.time, commit.time)})"
        )


def _check_batch(id: str, entry: Entry, commit: Commit, files: Collection[WrittenFile]) -> None:
    if commit.time < entry.upper:
        raise _conflict(
            f"collection {id} is known up to {entry.upper - 1}, and a batch at {commit.time} is "
            "not after that"
        )
    for file in files:
        name = part_name(file.path)
        # Another write to the collection may have come after the part was written: then its batch
        # begins too early, which does no harm as long as none of its updates does.
        if name.upper != commit.time + 1 or (
            name.lower != entry.upper and first_time(file) < entry.upper
        ):
            raise DataError(
                f"collection {id}: part {file.path} is of the batch [{name.lower}, {name.upper}), "
                f"and the commit is of [{entry.upper}, {commit.time + 1}). Write it again, with "
                "the writer of the collection for this time"
            )


def _conflict(why: str) -> CommitConflictError:
    return CommitConflictError(
        f"{why}. Nothing was committed; refresh the history, and do it again on what is there now"
    )
