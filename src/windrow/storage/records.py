"""Records: small JSON objects in a store, each written entirely or not at all.

>>> import tempfile
>>> store = Store.at(tempfile.mkdtemp())
>>> write_record(store, "users/ann.json", {"name": "ann"})
>>> read_record(store, "users/ann.json")
{'name': 'ann'}
>>> read_record(store, "users/bob.json") is None
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windrow.storage.store import Store


def write_record(store: Store, name: str, record: Mapping[str, Any]) -> None:
    store.put(name, json.dumps(record).encode())


def read_record(store: Store, name: str) -> dict[str, Any] | None:
    """None if there is no such record, or if it is not one."""
    data = store.get(name)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
