"""A process that writes to a store until it is killed: python store_child.py PICKLE FIRST.

Round after round it replaces all records, loads some of another generation, and prints the number
of a round when all of it was acknowledged.
"""

from __future__ import annotations

import pickle
import sys
from itertools import count
from pathlib import Path

from windrow.online.stores.store import RecordStore

KEYS = [b"%08d" % i for i in range(100)]


def content(number: int) -> bytes:
    return b"%d " % number * 200


def number_of(value: bytes) -> int:
    """The round of a record, all of which is of one."""
    (number,) = {int(part) for part in value.split()}
    return number


def write(store: RecordStore, number: int) -> None:
    store.update(KEYS, lambda found: [content(number)] * len(KEYS))
    store.load((b"other---" + key, content(number)) for key in KEYS)
    if number % 3 == 0:
        store.remove(b"other---")
    store.change_note("round", lambda _: b"%d" % number)


if __name__ == "__main__":
    opened = pickle.loads(Path(sys.argv[1]).read_bytes())
    for number in count(int(sys.argv[2])):
        write(opened, number)
        print(number, flush=True)
