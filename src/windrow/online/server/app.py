"""The application: a request in, an answer out. Raw ASGI."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from windrow.errors import WindrowError
from windrow.online.fetched import Fetched, Request, Served
from windrow.online.log.logged import Logged
from windrow.online.server import feast, openapi, page
from windrow.online.server.catalogue import Catalogue, Entry
from windrow.online.server.describing import listed, shown
from windrow.online.server.features import Features
from windrow.online.server.limits import Limits
from windrow.online.server.logs import Log
from windrow.online.server.metrics import CONTENT_TYPE, Tallies
from windrow.online.server.mounted import Mounted
from windrow.online.server.refusals import (
    JSON,
    Headers,
    Refusal,
    of_error,
)
from windrow.online.server.tokens import Tokens
from windrow.online.server.turns import Turns

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answered = tuple[bytes, Sequence[tuple[bytes, bytes]]]  # the body, and headers
T = TypeVar("T")

FEATURES = "/v1/features/"
LIVE = "/health/live"
_HEALTH = (LIVE, "/health/ready", "/health")
_JSON: Headers = [JSON]
_CLOSE = (b"connection", b"close")


class Gone(Exception):  # noqa: N818
    """The client has closed its connection; there is nobody to answer."""


class App:
    """Answers requests from what a `Served` has. One for each worker."""

    def __init__(
        self,
        served: Served,
        limits: Limits | None = None,
        tokens: Tokens | None = None,
        tallies: Tallies | None = None,
        log: Log | None = None,
        mounted: Mounted | None = None,
        *,
        features: bool = True,
    ) -> None:
        self.mounted, self.has_features = mounted, features
        self.limits = limits or Limits()
        self.tallies = tallies or Tallies()
        self.log = log or Log()
        self.tokens = tokens or Tokens()
        self.closing = False  # set when the worker has been told to stop
        self._served = served
        self._waits = served.waits
        if isinstance(served, Logged):
            self.tallies.figures = served.log.figures
            served.log.report = lambda text: self.log.write("warning", "serving_log", message=text)
        self._catalogue = Catalogue(served)
        self._turns = Turns(served, self.limits)
        self._looking: dict[str, asyncio.Future[Entry]] = {}
        self.features = Features(
            self._catalogue, self._turns, self.limits, self.tallies, self._look_up, self._refused
        )
        self._routes: dict[str, tuple[str, str, Callable[[Receive], Awaitable[Answered]]]] = {
            "/get-online-features": ("feast", "POST", self._feast),
            "/v1/features": ("names", "GET", self._names),
            LIVE: ("health", "GET", self._live),
            "/health/ready": ("health", "GET", self._ready),
            "/health": ("health", "GET", self._ready),
            "/metrics": ("metrics", "GET", self._metrics),
            "/openapi.json": ("openapi", "GET", self._openapi),
            "/docs": ("page", "GET", self._page),
            "/": ("page", "GET", self._page),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; every one is answered, and counted."""
        began = perf_counter()
        path, method = scope["path"], scope["method"]
        status, route = 200, "features"
        mounted = self.mounted
        if mounted is not None and (path == mounted.path or path.startswith(f"{mounted.path}/")):
            await self._answer_mounted(mounted, scope, receive, send)
            return
        try:
            if not self.has_features and path not in _HEALTH:
                route = "elsewhere"
                raise _elsewhere(mounted, path)
            if self.tokens and path != LIVE and not self.tokens.accept(scope["headers"]):
                route = "refused"
                raise unauthorized()
            route, answer = self._route(path, method)
            body, headers = await answer(receive)
        except Gone:
            return
        except Exception as error:
            failure = self._refused(error)
            status, body, headers = failure.status, failure.body, failure.headers
            self.tallies.error(failure.code)
        heads = [*headers, (b"content-length", b"%d" % len(body))]
        if self.closing:
            heads.append(_CLOSE)
        # uvloop gathers both into one write.
        await send({"type": "http.response.start", "status": status, "headers": heads})
        await send({"type": "http.response.body", "body": body})
        seconds = perf_counter() - began
        self.tallies.request(route, status, seconds)
        if self.log.requests:
            self.log_request(scope, route, status, len(body), seconds)

    async def _answer_mounted(
        self, mounted: Mounted, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """What is mounted answers; it is counted, and closes connections, as all else."""
        began = perf_counter()
        status, size = 500, 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.closing:
                    message["headers"] = [*message["headers"], _CLOSE]
            else:
                size += len(message.get("body", b""))
            await send(message)

        await mounted(scope, receive, sending)
        seconds = perf_counter() - began
        self.tallies.request("mounted", status, seconds)
        if self.log.requests:
            self.log_request(scope, "mounted", status, size, seconds)

    # Features

    async def _feast(self, receive: Receive) -> Answered:
        question = feast.decode(await self._body(receive))
        asked = feast.views(question)
        entries = [
            self._catalogue.known(view.name) or await self._look_up(view.name) for view in asked
        ]
        for view, entry in zip(asked, entries, strict=True):
            if view.features is not None:
                entry.check_features(view.features, code="not_found")
        at: int | None = None
        fetched: dict[str, tuple[Entry, Fetched]] = {}
        for view, entry in zip(asked, entries, strict=True):
            rows = feast.rows(question, entry)
            fetched[view.name] = await self._fetch(entry, rows, at, view.features)
            at = fetched[view.name][1].at  # one time for all of them
        return feast.encode(question, asked, fetched), _JSON

    async def _fetch(
        self, entry: Entry, keys: Sequence[Any], at: int | None, features: list[str] | None
    ) -> tuple[Entry, Fetched]:
        """What is fetched, with the entry of the definition that it was computed by."""
        name = entry.description.name
        self.limits.check_keys(len(keys))
        fetched = await self._turns.fetched(Request(name, keys, at, features))
        self.tallies.fetched(name, len(keys), fetched.fresh_at)
        if fetched.version and fetched.version != entry.description.version:
            entry = await self._look_up(name)  # it has changed since
        return entry, fetched

    async def _look_up(self, name: str) -> Entry:
        """The entry of a name, as it is now; who asks for one that is being looked up joins in."""
        if not self._waits:
            return self._catalogue.look_up(name)
        task = self._looking.get(name)
        if task is None:
            call = partial(self._catalogue.look_up, name)
            task = asyncio.ensure_future(self._turns.in_thread(call))
            self._looking[name] = task
            task.add_done_callback(lambda _: self._looking.pop(name))
        return await asyncio.shield(task)

    async def _ask(self, call: Callable[[], T]) -> T:
        return await self._turns.in_thread(call) if self._waits else call()

    async def _body(self, receive: Receive) -> bytes:
        """All of a body, or a refusal as soon as it is too long."""
        message = await receive()
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            parts.append(message["body"])
            size += len(parts[-1])
            if size > self.limits.body:
                raise Refusal("too_large", f"the body is longer than {self.limits.body} bytes")
            if not message["more_body"]:
                return b"".join(parts)
            message = await receive()
        raise Gone

    # All else

    def _route(
        self, path: str, method: str
    ) -> tuple[str, Callable[[Receive], Awaitable[Answered]]]:
        if path.startswith(FEATURES):
            name = path[len(FEATURES) :]
            # A POST never comes here: connections answer it by `features`.
            route, allowed, answer = "describe", "GET, POST", partial(self._describe, name)
        elif path in self._routes:
            route, allowed, answer = self._routes[path]  # type: ignore[assignment]
        else:
            raise Refusal("not_found", "there is nothing here; /openapi.json lists what there is")
        if ("GET" if method == "HEAD" else method) not in allowed:
            allow = (b"allow", allowed.replace("GET", "GET, HEAD").encode())
            raise Refusal("method_not_allowed", f"use {allowed} here", headers=[allow])
        return route, answer

    async def _names(self, receive: Receive) -> Answered:
        names = await self._ask(self._served.names)
        return msgspec.json.encode(listed(names)), _JSON

    async def _describe(self, name: str, receive: Receive) -> Answered:
        entry = self._catalogue.known(name) or await self._look_up(name)
        return msgspec.json.encode(shown(entry.description)), _JSON

    async def _live(self, receive: Receive) -> Answered:
        return b'{"status":"live"}', _JSON

    async def _ready(self, receive: Receive) -> Answered:
        if self.closing:
            raise Refusal("not_ready", "the server is stopping")
        if self.has_features and not await self._ask(self._served.names):
            raise Refusal("not_ready", "nothing is served yet; run `windrow upload`")
        return b'{"status":"ready"}', _JSON

    async def _metrics(self, receive: Receive) -> Answered:
        return self.tallies.text(), [(b"content-type", CONTENT_TYPE)]

    async def _openapi(self, receive: Receive) -> Answered:
        names = await self._ask(self._served.names)
        entries = [self._catalogue.known(name) or await self._look_up(name) for name in names]
        return openapi.document(entries, secured=bool(self.tokens)), _JSON

    async def _page(self, receive: Receive) -> Answered:
        return page.CONTENT, page.HEADERS

    # Failures

    def _refused(self, error: Exception) -> Refusal:
        """The refusal for an error; what is not the client's fault is logged, and not shown."""
        if isinstance(error, Refusal):
            return error
        refusal = of_error(error) if isinstance(error, WindrowError) else None
        if refusal is None:
            id = secrets.token_hex(8)
            self.log.failure("failed", error, id=id)
            return Refusal("internal", "the request failed; the server's log says why", id=id)
        if refusal.code == "unavailable":
            self.log.write("error", "unavailable", message=str(error))
        return refusal

    def log_request(
        self, scope: Mapping[str, Any], route: str, status: int, size: int, seconds: float
    ) -> None:
        client = scope.get("client")
        self.log.write(
            "info",
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            route=route,
            status=status,
            bytes=size,
            ms=round(seconds * 1000, 3),
            client=client[0] if client else None,
        )

    def close(self) -> None:
        """Let go of what the worker holds."""
        self._turns.close()
        if self.mounted is not None:
            self.mounted.close()
        close = getattr(self._served, "close", None)
        if close is not None:
            close()


def _elsewhere(mounted: Mounted | None, path: str) -> Refusal:
    """Where features are not served: a visitor of / is sent on, all else is not there."""
    at = "" if mounted is None else mounted.path
    refusal = Refusal("not_found", f"there is nothing here; see {at}/")
    if path == "/" and at:
        refusal.status = 303
        refusal.headers.append((b"location", f"{at}/".encode()))
    return refusal


def unauthorized() -> Refusal:
    """For who gives no token that is known."""
    return Refusal(
        "unauthorized",
        "give a token that is known here: `Authorization: Bearer ...`",
        headers=[(b"www-authenticate", b"Bearer")],
    )
