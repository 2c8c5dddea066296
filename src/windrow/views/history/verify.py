"""Is a project's history as it was written? Its records, its checkpoints, and what they name.

The shards of collections are checked by `windrow.shard.verify`; here it is whether they are what
the history says, and the parts that only the history names yet.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from windrow.errors import StorageError, WindrowError
from windrow.shard.files import unreadable
from windrow.shard.log import Log
from windrow.shard.part import Part
from windrow.shard.sums import CheckedFile
from windrow.shard.verify import Problem, Repair, Verification
from windrow.storage.delta import first_line
from windrow.storage.store import Store
from windrow.views.history.collections import FOLDER as COLLECTIONS
from windrow.views.history.collections import collection_store
from windrow.views.history.files import (
    FOLDER,
    HEAD,
    Decoded,
    HistoryFiles,
    checkpoint_name,
    decode,
    record_name,
)
from windrow.views.history.pending import part_of
from windrow.views.history.roll_forward import waiting
from windrow.views.history.state import Entry, State


@dataclass
class HistoryVerification(Verification):
    """As for a shard; `entries` are records, `parts` those that only the history names.

    `collections` are those of the project, None if that cannot be said.
    """

    collections: frozenset[str] | None = None
    waiting: dict[str, int] = field(default_factory=dict)  # batches that wait, by collection


def verify_history(root: Store) -> HistoryVerification | None:
    """Read all of the history of the project at `root`; None if there is none."""
    files = HistoryFiles(root.beneath(FOLDER))
    records, checkpoints, head = files.records(), files.checkpoints(), files.head()
    if not records and not checkpoints and head is None:
        return None
    found = HistoryVerification(files.folder.uri)
    newest = max([*records, *checkpoints, *([head["version"]] if head else [])])
    found.problems += _checkpoint_problems(files, newest)
    found.problems += _record_problems(files, newest, found)
    if head is None:
        head_name = f"{FOLDER}/{HEAD}"
        found.problems.append(
            Problem(head_name, "is missing or damaged", Repair.HEAD, is_damage=False)
        )
    try:
        state = files.load()
    except StorageError as error:
        if found.is_sound:
            found.problems.append(Problem(FOLDER, f"cannot be read: {first_line(error)}"))
        return found
    found.collections = frozenset(state.collections)
    for id, entry in state.collections.items():
        found.problems += _collection_problems(root, id, entry, found)
    return found


def repair_history(root: Store, found: HistoryVerification) -> list[Problem]:
    """Do what can be done about the problems; those that are done."""
    files = HistoryFiles(root.beneath(FOLDER))
    done = [p for p in found.problems if p.repair in (Repair.HEAD, Repair.CHECKPOINT)]
    for problem in done:
        if problem.repair is Repair.CHECKPOINT:
            files.folder.delete([problem.file.rpartition("/")[2]])
    if done:
        files.write_head(files.load())
    return done


def _checkpoint_problems(files: HistoryFiles, newest: int) -> Iterator[Problem]:
    """Checkpoints that cannot be read. Readers start from the one before, if they can."""
    valid = 0  # the version from which on all records are needed: the history's beginning
    there = set(files.records())
    for version in files.checkpoints():
        found = decode(files.folder.get(checkpoint_name(version)))
        if isinstance(found, Decoded):
            valid = version
            continue
        whole = set(range(valid + 1, newest + 1)) <= there
        repair = Repair.CHECKPOINT if whole else Repair.NONE
        name = f"{FOLDER}/{checkpoint_name(version)}"
        yield Problem(name, found, repair, is_damage=not whole)


def _record_problems(
    files: HistoryFiles, newest: int, found: HistoryVerification
) -> Iterator[Problem]:
    """Records that are missing, damaged, or not those that their neighbours know."""
    bases = {0: State()}
    for version in files.checkpoints():
        decoded = decode(files.folder.get(checkpoint_name(version)))
        if isinstance(decoded, Decoded):
            bases[version] = State.from_json(decoded.body)
    needed = max(bases)  # later records are read; earlier ones only if that checkpoint is lost
    first = min([needed + 1, *(v for v in bases if v)])
    previous: str | None = bases[0].checksum if first == 1 else None
    for version in range(first, newest + 1):
        base = bases.get(version - 1)
        previous = base.checksum if base is not None else previous
        name = f"{FOLDER}/{record_name(version)}"
        record = decode(files.folder.get(record_name(version)))
        if isinstance(record, str):
            previous = None
            yield Problem(name, record, is_damage=version > needed)
            continue
        found.entries += 1
        if record.body.get("version") != version:
            yield Problem(name, "is another record than its name says", is_damage=version > needed)
        elif previous is not None and record.body.get("previous") != previous:
            both = f"{FOLDER}/{record_name(version - 1)} or {record_name(version)}"
            yield Problem(both, "is not what it was", is_damage=version > needed)
        previous = record.checksum


def _collection_problems(
    root: Store, id: str, entry: Entry, found: HistoryVerification
) -> Iterator[Problem]:
    store, place = collection_store(root, id), f"{COLLECTIONS}/{id}"
    try:
        log = Log.open(store)
    except WindrowError as error:
        yield Problem(place, f"cannot be opened: {first_line(error)}")
        return
    if log.version < entry.log_version or log.upper < entry.log_upper:
        yield Problem(place, f"is at an earlier state than the history knows ({entry.log_upper})")
    if log.upper > entry.upper:
        yield Problem(place, f"holds updates that the history, up to {entry.upper}, has not")
    batches = waiting(log, entry)
    if batches:
        found.waiting[id] = len(batches)
    for file in (file for batch in batches for file in batch.files):
        found.parts += 1
        found.bytes += file.bytes
        wrong = _wrong_with(store, part_of(file, log.spec.schema))
        if wrong:
            yield Problem(f"{place}/{file.path}", wrong)


def _wrong_with(store: Store, part: Part) -> str:
    """What is wrong with a part that was written just now: it has checksums."""
    if not store.exists(part.path):
        return "is missing"
    assert part.name.tail is not None
    try:
        with store.open_input(part.path) as source:
            fail = functools.partial(unreadable, store, part)
            CheckedFile(source, part.bytes, part.name.tail, fail).check_all()
    except (StorageError, OSError):
        return "is damaged"
    return ""
