"""Who may see the console: the server's tokens, as a header or as a cookie made of one.

A visitor signs in with a token. The cookie does not hold it: it is a code made with the token's
digest, so that it opens the console and nothing else, and ends when the token is withdrawn. No
state is kept, so every worker knows every visitor.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

from windrow.online.server.tokens import Tokens

COOKIE = "windrow_console"
_PURPOSE, _FORMS = b"windrow console", b"windrow console forms"

Headers = Iterable[tuple[bytes, bytes]]


class Visitors:
    """Tells who a visitor is: one of `tokens` may look, one of `actors` may also act."""

    def __init__(self, tokens: Tokens, actors: Tokens | None = None) -> None:
        self._tokens, self._actors = tokens, actors or Tokens()

    @property
    def asks(self) -> bool:
        """Whether one has to sign in to look."""
        return bool(self._tokens)

    @property
    def has_actors(self) -> bool:
        """Whether anybody may act."""
        return bool(self._actors)

    def refresh(self) -> None:
        """Read the tokens of the actors again; the server looks after the others."""
        if self._actors.file is not None:
            self._actors.refresh()

    def may_look(self, headers: Headers, cookies: dict[str, str]) -> bool:
        """Without tokens, everybody may."""
        if not self._tokens:
            return True
        given = list(headers)
        if self._tokens.accept(given) or self._actors.accept(given):
            return True
        session = cookies.get(COOKIE, "")
        return self._is_session(self._tokens, session) or self._is_session(self._actors, session)

    def may_act(self, cookies: dict[str, str]) -> bool:
        """Only who has signed in with a token of the actors."""
        return self._is_session(self._actors, cookies.get(COOKIE, ""))

    def session(self, token: str) -> str | None:
        """The cookie for a token; None for one that is not known."""
        given = [(b"authorization", b"Bearer " + token.encode(errors="replace"))]
        # Both are asked: time must not tell which of them knows it.
        known = self._tokens.accept(given) | self._actors.accept(given)
        return _code(hashlib.sha256(token.encode()).digest(), _PURPOSE) if known else None

    def _is_session(self, tokens: Tokens, session: str) -> bool:
        found = False
        for digest in tokens.digests:
            found |= hmac.compare_digest(_code(digest, _PURPOSE).encode(), session.encode())
        return found


def form_code(session: str) -> str:
    """What a form of this visitor carries: no other site can know it."""
    return _code(session.encode(), _FORMS)


def is_form_code(session: str, given: str) -> bool:
    return hmac.compare_digest(form_code(session).encode(), given.encode())


def _code(key: bytes, purpose: bytes) -> str:
    return hmac.new(key, purpose, hashlib.sha256).hexdigest()


def cookies_of(headers: Headers) -> dict[str, str]:
    """The cookies of a request; what cannot be read is left out."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            try:
                parsed = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                continue
            found |= {key: morsel.value for key, morsel in parsed.items()}
    return found
