"""The folder of a backfill at work, beneath `tmp/`: for one run at a time, found again by the next.

    tmp/NAME/...            sorted queries, notes of finished slices, features on the way
    claims/ID.json          who works in which folder: a claim, renewed while that run lives

A run that is interrupted leaves its folder, and the next of the same work resumes in it. Two runs
of the same work at the same time would be in each other's way, so the second gets a folder of its
own. A folder that nobody has come back to for a week is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from windrow.errors import StorageError, StorageUnavailableError, WindrowError
from windrow.storage.leases import Lease, claim, claims, drop_leases, found_leases
from windrow.storage.names import new_id
from windrow.storage.store import Store

KEPT_SECONDS = 7 * 24 * 3600.0


@contextmanager
def work_folder(root: Store, name: str | None) -> Iterator[Store]:
    """The folder for the work of this name; None is work that no other run can resume.

    It is owned until the end of the block. It is removed then, also after an error that
    Windrow reports itself, since data or definitions have to change first. After any other, and
    if the store could not be used (a full disk, a lost connection), it stays for the next run.
    """
    owners = Store.at(f"{root.uri}/claims", root.options_dict)
    _sweep(root, owners)
    resumable = name is not None
    name = name or new_id()
    owner = claim(owners, name)
    while owner is None:
        name = f"{name}-{new_id()}"
        owner = claim(owners, name)
    # Of those that owned it before, the last one's claim told how long ago that was.
    drop_leases(owners, [c for c in claims(owners, name) if c.id != owner.id and not c.is_live()])
    work = _folder(root, name)
    try:
        yield work
    except BaseException as error:
        reported = isinstance(error, WindrowError)
        interrupted = not reported or isinstance(error, StorageUnavailableError)
        with suppress(StorageError):  # what is told is why the run failed
            owner.end() if resumable and interrupted else _remove(work, owner)
        raise
    _remove(work, owner)


def _remove(work: Store, owner: Lease) -> None:
    """Remove the work, and the claim last: nobody else comes before all of it is gone."""
    try:
        work.remove()
    except BaseException:
        owner.end()
        raise
    owner.release()


def _sweep(root: Store, owners: Store) -> None:
    """Remove what interrupted runs left long ago."""
    owners.drop_half_written()
    newest: dict[str, float] = {}
    for found in found_leases(owners):
        name = found.about.get("claim", "")
        newest[name] = max(newest.get(name, 0.0), found.at)
    for name, at in newest.items():
        if time.time() - at > KEPT_SECONDS and (owner := claim(owners, name)) is not None:
            drop_leases(owners, [c for c in claims(owners, name) if c.id != owner.id])
            _remove(_folder(root, name), owner)


def _folder(root: Store, name: str) -> Store:
    return Store.at(f"{root.uri}/tmp/{name}", root.options_dict)
