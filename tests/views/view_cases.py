"""Written queries, as text: `cases/*.sql`.

    -- name: the tables and other cases it reads
    SELECT ...

After the name, `(unordered a, b)` says which columns hold arrays in no particular order, and
`(since 4.3)` that older releases of Spark do not know the query; there it is no case. A line that
starts with `--` and has no such form is a comment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyspark
from view_oracle import View

T = TypeVar("T")
FOLDER = Path(__file__).parent / "cases"
SEED = int(os.environ.get("WINDROW_VIEWS_SEED", "0"))
RELEASE = ".".join(pyspark.__version__.split(".")[:2])  # of Spark
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
HEAD = re.compile(
    r"-- (?P<name>\w+)(?: \(unordered (?P<unordered>[\w, ]+)\))?(?: \(since (?P<since>[\d.]+)\))?"
    r": (?P<reads>[\w, ]+)"
)


@dataclass(frozen=True)
class Case:
    """A view and what it reads."""

    view: View
    reads: tuple[str, ...]


def release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


def names_in(text: str | None) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text or ""))


def parse(path: Path) -> dict[str, Case]:
    """The cases of a file, in order: one that others read comes before them."""
    found: dict[str, Case] = {}
    head: re.Match[str] | None = None
    lines: list[str] = []

    def finish() -> None:
        if head is None:
            return
        name, query = head["name"], "\n".join(lines).strip()
        assert name not in found, f"{path.name} has two cases {name}"
        assert query, f"{path.name}: {name} has no query"
        if release(pyspark.__version__) < release(head["since"] or "0"):
            return
        view = View(name, query, names_in(head["unordered"]))
        found[name] = Case(view, names_in(head["reads"]))

    for line in path.read_text().splitlines():
        if match := HEAD.fullmatch(line):
            finish()
            head, lines = match, []
        elif not line.startswith("--"):
            lines.append(line)
    finish()
    return found


@cache
def cases(topic: str) -> dict[str, Case]:
    return parse(FOLDER / f"{topic}.sql")


def one_of(every: int, things: Iterable[T]) -> list[T]:
    """One of `every` so many, other ones for another seed; all of them in a long run."""
    return list(things) if LONG else list(things)[SEED % every :: every]


def some(topic: str, every: int) -> dict[str, Case]:
    """One case of `every` so many, and what these read."""
    known = cases(topic)
    wanted = one_of(every, known)
    for name in wanted:  # it grows meanwhile
        wanted += [other for other in known[name].reads if other in known and other not in wanted]
    return {name: case for name, case in known.items() if name in wanted}


def topics() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.sql"))
