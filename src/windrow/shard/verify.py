"""Is a shard as it was written? Its log, entry by entry; its parts, byte by byte; what lies about.

Reading checks as much as it reads. Verifying reads everything, says all that is wrong and not only
the first, and what can be done about each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from windrow.errors import ShardNotFoundError, StorageError
from windrow.shard.actions import parts_from_log
from windrow.shard.chain import LOG_FOLDER, Chain, checkpoint_name, entry_name
from windrow.shard.files import unreadable
from windrow.shard.part import Part
from windrow.shard.spec import ShardSpec
from windrow.shard.sums import CheckedFile
from windrow.storage.delta import first_line, is_failure
from windrow.storage.footers import check_file
from windrow.storage.store import Store

HEAD_NAME = f"{LOG_FOLDER}/_windrow/head.json"


class Repair(Enum):
    """What can be done about a problem, without losing anything."""

    NONE = "restore the file from a copy"
    HEAD = "it can be written again from the log"
    CHECKPOINT = "it can be deleted: all entries since the one before are there"
    VACUUM = "vacuum deletes them"


@dataclass(frozen=True)
class Problem:
    """A file of a shard that is not as it should be."""

    file: str
    what: str
    repair: Repair = Repair.NONE
    is_damage: bool = True  # reads are refused, or would be

    def __str__(self) -> str:
        return f"{self.file} {self.what}; {self.repair.value}"


@dataclass
class Verification:
    """What was looked at, and all that is wrong."""

    uri: str
    entries: int = 0
    parts: int = 0
    bytes: int = 0
    unchecked_parts: int = 0  # of an earlier release: without checksums, only decoded
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(problem.is_damage for problem in self.problems)


def verify_shard(store: Store) -> Verification:
    """Read all of the shard at `store`, and find what is missing, damaged or left over."""
    found = Verification(store.uri)
    chain = Chain(store)
    found.problems += _log_problems(chain, found)
    try:
        table = DeltaTable(store.delta_uri, storage_options=store.options_dict)
        schema = pa.schema(table.schema().to_arrow())
        properties = table.metadata().configuration
        stream = table.get_add_actions(flatten=False)
        actions = pa.RecordBatchReader.from_stream(stream).read_all()
        unused = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    except TableNotFoundError as error:
        raise ShardNotFoundError(f"{store.uri}: there is no shard") from error
    except BaseException as error:
        if not is_failure(error):
            raise
        found.problems.append(Problem(LOG_FOLDER, f"cannot be read: {first_line(error)}"))
        return found
    if "windrow.format" not in properties:
        raise ShardNotFoundError(f"{store.uri}: this Delta table is not a shard")
    for part in parts_from_log(actions, ShardSpec.from_properties(schema, properties), {}):
        found.parts += 1
        found.bytes += part.bytes
        found.unchecked_parts += part.name.tail is None
        found.problems += _part_problems(store, part)
    left = [name for name in unused if "/" not in name]
    if left:
        files = f"{len(left)} files" if len(left) > 1 else left[0]
        what = "are not part of the shard" if len(left) > 1 else "is not part of the shard"
        found.problems.append(Problem(files, what, Repair.VACUUM, is_damage=False))
    return found


def repair_shard(store: Store, found: Verification) -> list[Problem]:
    """Do what can be done about the problems; those that are done."""
    done = []
    for problem in found.problems:
        if problem.repair not in (Repair.HEAD, Repair.CHECKPOINT):
            continue
        chain = Chain(store)
        if problem.repair is Repair.CHECKPOINT:
            chain.drop_checkpoint(int(problem.file.rpartition("/")[2].partition(".")[0]))
        chain.check(chain.versions()[-1])
        chain.seal(checkpointed=True)
        done.append(problem)
    return done


def _log_problems(chain: Chain, found: Verification) -> Iterator[Problem]:
    versions, checkpoints, head = chain.versions(), chain.checkpoints(), chain.head()
    newest = max([*versions, *checkpoints, *([head.version] if head else [])], default=-1)
    damaged = None
    if head is not None and head.checkpoint is not None:
        what = chain.wrong_with_checkpoint(head)
        if what:
            damaged = head.checkpoint
            checkpoints = [version for version in checkpoints if version != damaged]
            before = max(checkpoints, default=-1)
            whole = set(range(before + 1, newest + 1)) <= set(versions)
            repair = Repair.CHECKPOINT if whole else Repair.NONE
            yield Problem(f"{LOG_FOLDER}/{checkpoint_name(damaged)}", what, repair)
    base = max(checkpoints, default=-1)
    there = set(versions)
    previous, linked = None, False
    for version in range(min([base + 1, *versions]), newest + 1):
        name = f"{LOG_FOLDER}/{entry_name(version)}"
        if version not in there and version <= base:
            previous = None
            continue
        entry = chain.entry(version)
        if isinstance(entry, str):
            previous = None
            yield Problem(name, entry)
            continue
        found.entries += 1
        linked = linked or entry.previous is not None
        if previous is not None and entry.previous not in (None, previous.sum):
            both = f"{entry_name(previous.version)} or {entry_name(version)}"
            yield Problem(f"{LOG_FOLDER}/{both}", "is not what it was")
        if head is not None and head.version == version and head.sum != entry.sum:
            yield Problem(name, "is not what it was")
        previous = entry
    if head is None and linked:
        yield Problem(HEAD_NAME, "is missing or damaged", Repair.HEAD, is_damage=False)


def _part_problems(store: Store, part: Part) -> Iterator[Problem]:
    if not store.exists(part.path):
        yield Problem(part.path, "is missing")
        return
    try:
        with store.open_input(part.path) as source:
            if part.name.tail is None:
                check_file(source, part.path)
                return
            fail = functools.partial(unreadable, store, part)
            CheckedFile(source, part.bytes, part.name.tail, fail).check_all()
    except (StorageError, OSError):
        yield Problem(part.path, "is damaged")
