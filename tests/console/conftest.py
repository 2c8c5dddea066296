"""Consoles to ask: in this process, over a project that is made without Spark."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from windrow.console.app import Console
from windrow.console.looking import Definitions, Looking
from windrow.console.sessions import Visitors
from windrow.online.server.tokens import Tokens
from windrow.project import Project


@dataclass
class Answered:
    """An answer, as a browser gets it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """Asks a console in this process."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def ask(self, page: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answered:
        path, _, query = page.partition("?")
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        given = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        scope = {"type": "http", "path": f"/console/{path}", "query_string": query.encode()}
        asyncio.run(self.console({**scope, "method": method, "headers": given}, receive, send))
        found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return Answered(sent[0]["status"], found, sent[1]["body"])

    def page(self, page: str) -> str:
        """The text of a page that is there."""
        answer = self.ask(page)
        assert answer.status == 200, answer.text
        return answer.text


Open = Callable[..., Client]


@pytest.fixture(scope="module")
def opened() -> Iterator[Open]:
    """Opens consoles of project roots; they look again at every request."""
    made: list[Console] = []

    def open_(
        root: Path,
        definitions: Definitions | None = None,
        tokens: Tokens | None = None,
        actors: Tokens | None = None,
    ) -> Client:
        ticking = iter(range(10**9))
        looking = Looking(
            Project(root, progress=False), definitions, clock=lambda: 100.0 * next(ticking)
        )
        console = Console(looking, Visitors(tokens or Tokens(), actors))
        made.append(console)
        return Client(console)

    yield open_
    for one in made:
        one.close()
