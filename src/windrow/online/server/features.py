"""`POST /v1/features/{name}`: a body in, features out.

This is what a server is asked all the time, so it goes without ASGI: from the connection that has
read a body to the turn that fetches it with others, and back to the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from windrow.online.fetched import Outcome, Request
from windrow.online.server import answers
from windrow.online.server.catalogue import Catalogue, Entry
from windrow.online.server.limits import Limits
from windrow.online.server.metrics import Tallies
from windrow.online.server.refusals import JSON, Headers, Refusal, of_decoding
from windrow.online.server.turns import Turns

Respond = Callable[[int, bytes, Headers], None]  # status, body and headers
_JSON: Headers = [JSON]


class Features:
    """Answers requests for features. `look_up` asks what a name is, `refused` what to say."""

    def __init__(
        self,
        catalogue: Catalogue,
        turns: Turns,
        limits: Limits,
        tallies: Tallies,
        look_up: Callable[[str], Awaitable[Entry]],
        refused: Callable[[Exception], Refusal],
    ) -> None:
        self._catalogue, self._turns = catalogue, turns
        self._limits, self._tallies = limits, tallies
        self._look_up, self._refused = look_up, refused
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, name: str, body: bytes | bytearray, respond: Respond) -> None:
        """Respond to a request, sooner or later, on the event loop."""
        entry = self._catalogue.known(name)
        if entry is None:
            self._later(self._after_look_up(name, body, respond))
        else:
            self._fetch(entry, body, respond)

    def _fetch(self, entry: Entry, body: bytes | bytearray, respond: Respond) -> None:
        try:
            request = self._decoded(entry, body)
        except Exception as error:
            self.refuse(error, respond)
        else:
            self._turns.fetch(request, partial(self._fetched, entry, respond))

    def _decoded(self, entry: Entry, body: bytes | bytearray) -> Request:
        try:
            asked = entry.decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise of_decoding(error) from None
        keys, features = asked.keys, asked.features
        if entry.settle:
            entry.settle_rows(keys)
        if features is not None:
            entry.check_features(features)
            features = list(dict.fromkeys(features))
        at = None if asked.at is None else answers.time_of(asked.at)
        self._limits.check_keys(len(keys))
        return Request(entry.description.name, keys, at, features)

    def _fetched(self, entry: Entry, respond: Respond, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            name = entry.description.name
            self._tallies.fetched(name, len(outcome.keys), outcome.fresh_at)
            if outcome.version and outcome.version != entry.description.version:
                self._later(self._after_change(name, outcome, respond))
                return
            body = answers.encode(outcome, entry)
        except Exception as error:
            self.refuse(error, respond)
        else:
            respond(200, body, _JSON)

    async def _after_look_up(self, name: str, body: bytes | bytearray, respond: Respond) -> None:
        try:
            entry = await self._look_up(name)
        except Exception as error:
            self.refuse(error, respond)
        else:
            self._fetch(entry, body, respond)

    async def _after_change(self, name: str, outcome: Outcome, respond: Respond) -> None:
        """The definition is another one since the request came: its types are, too."""
        assert not isinstance(outcome, Exception)
        try:
            body = answers.encode(outcome, await self._look_up(name))
        except Exception as error:
            self.refuse(error, respond)
        else:
            respond(200, body, _JSON)

    def refuse(self, error: Exception, respond: Respond) -> None:
        """Say what is wrong."""
        refusal = self._refused(error)
        self._tallies.error(refusal.code)
        respond(refusal.status, refusal.body, refusal.headers)

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
