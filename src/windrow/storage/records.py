"""Records: small JSON objects in a store, each written entirely or not at all, with a checksum.

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

from windrow.storage.checksum import checksum
from windrow.storage.store import Store


def write_record(store: Store, name: str, record: Mapping[str, Any]) -> None:
    store.put(name, json.dumps({"checksum": _sum(record), "record": record}).encode())


def read_record(store: Store, name: str) -> dict[str, Any] | None:
    """None if there is no such record, or if it is damaged."""
    data = store.get(name)
    if data is None:
        return None
    try:
        found = json.loads(data)
        record = found["record"]
        if not isinstance(record, dict) or found["checksum"] != _sum(record):
            return None
    except (ValueError, TypeError, KeyError):
        return None
    return record


def _sum(record: Mapping[str, Any]) -> str:
    return f"{checksum(json.dumps(record).encode()):016x}"
