"""Where the tables of a serving log are: one for each name and version, and one of counts."""

from __future__ import annotations

from windrow.storage.store import Store

_SERVED = "served"
_COUNTS = "counts"


def names(root: Store) -> list[str]:
    """The names that have a log."""
    return root.beneath(_SERVED).folders()


def log_table(root: Store, name: str, version: str) -> Store:
    return root.beneath(f"{_SERVED}/{name}/{version}")


def counts_table_of(root: Store, name: str) -> Store:
    return root.beneath(f"{_SERVED}/{name}/{_COUNTS}")


def log_tables(root: Store, name: str) -> dict[str, Store]:
    """The table of each version that was logged."""
    versions = root.beneath(f"{_SERVED}/{name}").folders()
    return {one: log_table(root, name, one) for one in versions if one != _COUNTS}


def all_tables(root: Store) -> list[Store]:
    """Of all names, those of counts among them."""
    found = [store for name in names(root) for store in log_tables(root, name).values()]
    return found + [counts_table_of(root, name) for name in names(root)]
