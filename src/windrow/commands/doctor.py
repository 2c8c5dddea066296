"""`windrow doctor`: is everything beneath a root as it was written, and what can be done if not.

Beneath a root there are shards (arrangements and tiles, or a shard by itself), results, and the
history of the tables and views with the shards of their collections. What a backfill has derived
is rebuilt by the next one if it is gone, so a damaged arrangement can be repaired by removing it; a
shard that holds data of its own cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console

from windrow.commands.render import console
from windrow.errors import ShardNotFoundError, StorageError
from windrow.shard.chain import LOG_FOLDER
from windrow.shard.verify import Problem, Repair, Verification, repair_shard, verify_shard
from windrow.storage.delta import first_line, open_table
from windrow.storage.footers import check_file
from windrow.storage.store import Store
from windrow.views.history.collections import FOLDER as COLLECTIONS
from windrow.views.history.files import FOLDER as HISTORY
from windrow.views.history.verify import HistoryVerification, repair_history, verify_history

_DERIVED = ("arrangements", "tiles")  # folders whose shards a backfill rebuilds


def doctor(root: str, options: Mapping[str, str] | None = None, *, repair: bool = False) -> bool:
    """Check all that is stored beneath `root`, and print what was found; whether all is sound."""
    out = console()
    place = Store.at(root, options)
    history = verify_history(place)
    tables = list(_tables(place))
    if not tables and history is None:
        raise StorageError(f"{root}: there is nothing to check: no shard, and no result")
    sound = history is None or _check_history(out, place, history, repair)
    for name, store in tables:
        if not _is_current(name, history):
            continue
        found = _verify(store)
        if history is not None and name.startswith(f"{COLLECTIONS}/"):
            # The history names parts that the shard does not know yet; sweeping deletes the rest.
            found.problems = [p for p in found.problems if p.repair is not Repair.VACUUM]
        derived = name.partition("/")[0] in _DERIVED
        _print(out, name or store.shown, found, derived)
        if repair and found.problems:
            sound = _repair(out, store, found, derived) and sound
        else:
            sound = found.is_sound and sound
    return sound


def _tables(root: Store, name: str = "", depth: int = 4) -> Iterator[tuple[str, Store]]:
    """The tables at and beneath `root`, with their names from there."""
    folders = root.folders()
    if LOG_FOLDER in folders:
        yield name, root
        return
    for folder in folders if depth else ():
        if not folder.startswith((".", "_")):
            yield from _tables(root.beneath(folder), f"{name}/{folder}".strip("/"), depth - 1)


def _check_history(out: Console, root: Store, found: HistoryVerification, repair: bool) -> bool:
    """Print what was found of a history; whether it is sound, perhaps after a repair."""
    state = "sound" if found.is_sound else "[bold]damaged[/bold]"
    batches = sum(found.waiting.values())
    waiting = f"; {batches:,} batches wait for {len(found.waiting):,} shards" if batches else ""
    out.print(f"{HISTORY}: {state}; {found.entries:,} records checked{waiting}")
    for problem in found.problems:
        out.print(f"  {problem}")
    if not repair or not found.problems:
        return found.is_sound
    for problem in repair_history(root, found):
        out.print(f"  repaired: {problem.file}")
    again = verify_history(root)
    return again is not None and again.is_sound


def _is_current(name: str, history: HistoryVerification | None) -> bool:
    """False for the shard of a collection that was dropped, and perhaps is just being removed."""
    folder, _, id = name.partition("/")
    known = None if history is None else history.collections
    return folder != COLLECTIONS or known is None or id in known


def _verify(store: Store) -> Verification:
    try:
        return verify_shard(store)
    except ShardNotFoundError:
        return _verify_result(store)


def _verify_result(store: Store) -> Verification:
    """A table of ours that is not a shard: its files are there, and can be decoded."""
    found = Verification(store.uri)
    try:
        table = open_table(store)
        assert table is not None
        names = [uri.rpartition("/")[2] for uri in table.file_uris()]
    except StorageError as error:
        found.problems.append(Problem(LOG_FOLDER, f"cannot be read: {first_line(error)}"))
        return found
    for name in names:
        found.parts += 1
        try:
            with store.open_input(name) as source:
                found.bytes += source.size()
                check_file(source, name)
        except StorageError as error:
            found.problems.append(Problem(name, f"cannot be read: {first_line(error)}"))
    return found


def _print(out: Console, name: str, found: Verification, derived: bool) -> None:
    state = "sound" if found.is_sound else "[bold]damaged[/bold]"
    parts = f"{found.parts:,} parts" if found.parts != 1 else "1 part"
    out.print(f"{name}: {state}; {parts}, {found.bytes / 2**20:,.1f} MiB checked")
    if found.unchecked_parts:
        out.print(
            f"  {found.unchecked_parts:,} parts of an earlier release have no checksums; compact "
            "the shard (everything=True) to give them some"
        )
    for problem in found.problems:
        rebuilt = derived and problem.is_damage and problem.repair is Repair.NONE
        advice = "remove the folder: the next backfill rebuilds it" if rebuilt else ""
        out.print(f"  {problem.file} {problem.what}; {advice or problem.repair.value}")


def _repair(out: Console, store: Store, found: Verification, derived: bool) -> bool:
    """Repair what can be repaired; whether all is sound then."""
    for problem in repair_shard(store, found):
        out.print(f"  repaired: {problem.file}")
    again = _verify(store)
    if not again.is_sound and derived:
        store.remove()
        out.print("  removed: the next backfill rebuilds it")
        return True
    return again.is_sound
