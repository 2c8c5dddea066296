"""Names of things that are stored: new ids, and digests of what they hold."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from typing import Any


class Anchored(str):
    """An absolute path that remembers how it was written.

    >>> Anchored("/home/ann/shop/data", "data"), written(Anchored("/home/ann/shop/data", "data"))
    ('/home/ann/shop/data', 'data')
    """

    def __new__(cls, path: str, written: str) -> Anchored:
        found = super().__new__(cls, path)
        found.written = written
        return found

    written: str

    def __reduce__(self) -> tuple[Any, ...]:
        return Anchored, (str(self), self.written)


def written(path: str | os.PathLike[str]) -> str:
    """A path as the user wrote it."""
    return path.written if isinstance(path, Anchored) else os.fspath(path)


def new_id() -> str:
    """A name that no one else has."""
    return uuid.uuid4().hex[:16]


def digest(*parts: Any) -> str:
    """A name for what `parts` say, the same in every process: 16 hexadecimal digits.

    Parts are whatever JSON writes; everything else is taken by its text.

    >>> digest("views", ["user_id"]) == digest("views", ("user_id",))
    True
    """
    return identity(*parts).hex()[:16]


def identity(*parts: Any) -> bytes:
    """32 bytes that nothing else has, not even something made to have them."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).digest()
