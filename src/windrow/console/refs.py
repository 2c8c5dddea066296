"""What a page is about: a thing of the project, by kind and name, and the address of its page.

Names may hold anything, and be longer than an address can be: a long one is known by its digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from windrow.storage.names import digest

ROOT = "/console"
_LONGEST = 300
KINDS = ("source", "table", "view", "arrangement", "group", "join", "store")


@dataclass(frozen=True)
class Ref:
    """A thing of the project. `kind` is one of KINDS, or "relation": a source that SQL reads."""

    kind: str
    name: str

    @property
    def id(self) -> str:
        """How addresses and drawings know it."""
        return f"{self.kind}:{known_as(self.name)}"

    @property
    def href(self) -> str:
        """Its page; a store has none of its own."""
        if self.kind == "arrangement":
            return f"{ROOT}/arrangements#{known_as(self.name)}"
        if self.kind == "store":
            return f"{ROOT}/features"
        page = "relation" if self.kind == "table" else self.kind
        return link(page, name=known_as(self.name))


def known_as(name: str) -> str:
    """The name, or for a long one a digest of it."""
    return name if 0 < len(name) <= _LONGEST and name[0] != "~" else f"~{digest(name)}"


def link(page: str, **query: object) -> str:
    """The address of a page.

    >>> link("view", name="a/b&c")
    '/console/view?name=a%2Fb%26c'
    """
    given = {key: str(one) for key, one in query.items() if one not in (None, "")}
    return f"{ROOT}/{page}" + (f"?{urlencode(given, errors='replace')}" if given else "")
