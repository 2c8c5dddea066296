"""A request to the console, and the answers that pages give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a page needs to know. `query` has the first value of each name."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    may_act: bool = False
    form_code: str = ""

    def get(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def number(self, name: str, default: int, most: int = 10**15) -> int:
        """A whole number that is not negative; the default for anything else."""
        given = self.query.get(name, "")
        if not given.isascii() or not given.isdecimal() or len(given) > 15:
            return default
        return min(int(given), most)


@dataclass(frozen=True)
class Page:
    """A page: its template and what that shows."""

    template: str
    context: Mapping[str, Any]
    status: int = 200


class Absent(Exception):  # noqa: N818 (it is an answer)
    """There is no such thing; says so."""
