"""Style and script, served from the package under addresses that change with their content."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@functools.cache
def _assets() -> dict[str, tuple[str, bytes, str]]:
    """By name: the name in addresses, the content, and its type."""
    found = {}
    folder = files(__package__).joinpath("static")
    for file in folder.iterdir():
        stem, _, kind = file.name.rpartition(".")
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[file.name] = f"{stem}.{digest}.{kind}", content, _TYPES[kind]
    return found


def address(name: str) -> str:
    """The name of a file in addresses."""
    return _assets()[name][0]


def content(name: str) -> tuple[bytes, str] | None:
    """What an address stands for, and its type."""
    for known, data, type_ in _assets().values():
        if known == name:
            return data, type_
    return None
