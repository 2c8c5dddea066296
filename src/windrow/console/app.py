"""The console as an ASGI application: beside the server of features, or by itself.

Pages are made in threads, so that requests for features do not wait for them. Every answer carries
a policy that lets the browser load nothing from elsewhere, and run no script but the console's own.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from windrow.consistency.stored import read_page
from windrow.console import assets
from windrow.console.looking import Looking
from windrow.console.pages import ACTIONS, PAGES
from windrow.console.pages.reading import Reading
from windrow.console.refs import ROOT, link
from windrow.console.rendering import THEMES, render
from windrow.console.requests import Absent, Page, Request
from windrow.console.sessions import COOKIE, Visitors, cookies_of, form_code, is_form_code
from windrow.errors import OptionError, WindrowError
from windrow.online.server.logs import Log

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

THEME = "windrow_theme"
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A stored report has its style within it, and no script: it is shown, and can do nothing.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
_HEADERS: list[Header] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_NEVER = (b"cache-control", b"no-store")
_LONGEST_FORM = 16 * 1024
_YEAR = 31_536_000


@dataclass
class Answer:
    """Status, headers and body of an answer."""

    status: int
    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    policy: str = _POLICY
    headers: list[Header] = field(default_factory=list)


class Console:
    """Answers requests beneath `/console`."""

    def __init__(
        self, looking: Looking, visitors: Visitors, log: Log | None = None, *, threads: int = 2
    ) -> None:
        self._reading = Reading(looking)
        self._visitors = visitors
        self._log = log or Log()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="console")

    @property
    def path(self) -> str:
        """Where it is mounted."""
        return ROOT

    def refresh(self) -> None:
        """Read the tokens of those who may act again, if their file has changed."""
        try:
            self._visitors.refresh()
        except OptionError as error:
            self._log.write("warning", "tokens", message=f"{error}; the ones before stay")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:
            id = secrets.token_hex(8)
            self._log.failure("console", error, id=id)
            answer = Answer(500, f"The page failed; the server's log says why ({id}).".encode())
            answer.type = "text/plain; charset=utf-8"
        headers = [
            (b"content-type", answer.type.encode()),
            (b"content-length", b"%d" % len(answer.body)),
            (b"content-security-policy", answer.policy.encode()),
            *_HEADERS,
            *answer.headers,
        ]
        if not any(name == b"cache-control" for name, _ in headers):
            headers.append(_NEVER)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        name = scope["path"].removeprefix(ROOT).lstrip("/")
        method = scope["method"]
        if name.startswith("static/"):
            return _asset(name.removeprefix("static/"))
        cookies = cookies_of(scope["headers"])
        theme = cookies.get(THEME, "")
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query: dict[str, str] = {}
        for key, value in given:
            query.setdefault(key, value)
        if name == "theme":
            return _themed(query, scope)
        if name == "sign-in":
            form = await _form(receive) if method == "POST" else None
            return self._sign_in(query, form, theme, scope)
        if name == "sign-out" and method == "POST":
            return _redirected(link("sign-in"), _cookie(COOKIE, "", 0, scope))
        if not self._visitors.may_look(scope["headers"], cookies):
            if method != "GET":
                return Answer(401, b"sign in first", "text/plain")
            back = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if query else "")
            return _redirected(link("sign-in", back=back))
        session = cookies.get(COOKIE, "")
        may_act = self._visitors.may_act(cookies)
        code = form_code(session) if may_act else ""
        request = Request(name, query, may_act, code)
        if method == "POST":
            return await self._act(name, request, session, await _form(receive), scope)
        if method not in ("GET", "HEAD"):
            return Answer(405, b"", headers=[(b"allow", b"GET, HEAD")])
        loop = asyncio.get_running_loop()
        signed = bool(session) and self._visitors.asks
        if name == "report":
            return await loop.run_in_executor(
                self._pool, lambda: self._report(request, theme, signed)
            )
        made = PAGES.get(name)
        return await loop.run_in_executor(
            self._pool, lambda: self._page(made, request, theme, signed)
        )

    def _page(
        self,
        make: Callable[[Reading, Request], Page] | None,
        request: Request,
        theme: str,
        signed: bool,
    ) -> Answer:
        try:
            if make is None:
                raise Absent("There is no such page.")
            page = make(self._reading, request)
        except Absent as absent:
            page = Page("absent.html", {"says": str(absent)}, 404)
        except WindrowError as error:
            self._log.write("warning", "console", message=str(error))
            page = Page("failed.html", {"says": str(error), "kind": type(error).__name__}, 503)
        body = render(page, request, theme=theme, signed_in=signed)
        return Answer(page.status, body.encode(errors="backslashreplace"))

    def _report(self, request: Request, theme: str, signed: bool) -> Answer:
        """A report of consistency, as it was stored."""
        try:
            store = self._reading.looking.store
            stored = read_page(store, request.get("name"), request.get("run"))
        except WindrowError:
            return self._page(None, request, theme, signed)
        return Answer(200, stored, policy=_REPORT_POLICY)

    async def _act(
        self, name: str, request: Request, session: str, form: dict[str, str], scope: Scope
    ) -> Answer:
        """What changes something: only for who may, from a form of the console itself."""
        action = ACTIONS.get(name)
        if action is None:
            return Answer(405, b"", headers=[(b"allow", b"GET, HEAD")])
        if not request.may_act or not is_form_code(session, form.get("code", "")):
            return Answer(403, b"this needs a token that allows it", "text/plain")
        if not _is_own(scope):
            return Answer(403, b"the form is from another site", "text/plain")
        loop = asyncio.get_running_loop()
        try:
            back = await loop.run_in_executor(self._pool, action, self._reading, form)
        except WindrowError as error:
            self._log.write("warning", "console", message=str(error))
            page = Page("failed.html", {"says": str(error), "kind": type(error).__name__}, 409)
            return Answer(409, render(page, request).encode())
        return _redirected(back)

    def _sign_in(
        self, query: dict[str, str], form: dict[str, str] | None, theme: str, scope: Scope
    ) -> Answer:
        back = _within(query.get("back", ""))
        failed = False
        if form is not None:
            session = self._visitors.session(form.get("token", "").strip())
            if session is not None:
                return _redirected(
                    _within(form.get("back", back)), _cookie(COOKIE, session, None, scope)
                )
            failed = True
        context = {"back": back, "failed": failed, "asks": self._visitors.asks}
        context["has_actors"] = self._visitors.has_actors
        status = 401 if failed else 200
        body = render(Page("sign_in.html", context), Request("sign-in", query), theme=theme)
        return Answer(status, body.encode())

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _asset(name: str) -> Answer:
    found = assets.content(name)
    if found is None:
        return Answer(404, b"there is no such file", "text/plain")
    return Answer(200, found[0], f"{found[1]}; charset=utf-8", headers=[_FOREVER])


def _themed(query: dict[str, str], scope: Scope) -> Answer:
    """Remember a theme, and go back."""
    theme = query.get("to", "")
    theme = theme if theme in THEMES else ""
    cookie = _cookie(THEME, theme, _YEAR if theme else 0, scope)
    return _redirected(_within(query.get("back", "")), cookie)


def _within(address: str) -> str:
    """An address of the console: nowhere else is gone to."""
    parts = urlsplit(address.replace("\\", "/"))
    inside = parts.path == ROOT or parts.path.startswith(f"{ROOT}/")
    if parts.scheme or parts.netloc or not inside or "\n" in address or "\r" in address:
        return f"{ROOT}/"
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _redirected(address: str, *headers: Header) -> Answer:
    place = address.encode("ascii", "ignore")
    return Answer(303, headers=[(b"location", place), *headers])


def _cookie(name: str, value: str, age: int | None, scope: Scope) -> Header:
    """A cookie that scripts cannot read, and that other sites' requests do not carry."""
    text = f"{name}={value}; Path={ROOT}; HttpOnly; SameSite=Strict"
    if age is not None:
        text += f"; Max-Age={age}"
    forwarded = (value for name, value in scope["headers"] if name == b"x-forwarded-proto")
    if b"https" in forwarded:
        text += "; Secure"
    return b"set-cookie", text.encode()


def _is_own(scope: Scope) -> bool:
    """Whether a form comes from the site that it is sent to, as far as the browser tells."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    return origin is None or urlsplit(origin.decode("latin-1")).netloc.encode() == headers.get(
        b"host", b""
    )


async def _form(receive: Receive) -> dict[str, str]:
    """The fields of a form; one that is too long has none."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return {}
        size += len(message.get("body", b""))
        if size <= _LONGEST_FORM:
            parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            break
    if size > _LONGEST_FORM:
        return {}
    return dict(parse_qsl(b"".join(parts).decode("latin-1"), keep_blank_values=True))
