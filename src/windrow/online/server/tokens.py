"""Bearer tokens: who may ask.

From a file with one token a line, or from the environment; never from the command line, which
every user of a machine can read. Tokens are kept as digests and compared in constant time; they
are in no log line and no error.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from windrow.errors import OptionError

VARIABLE = "WINDROW_TOKENS"
_SHORTEST = 16


class Tokens:
    """The tokens that are accepted. None at all: everybody may ask."""

    def __init__(self, tokens: Iterable[str] = (), file: Path | None = None) -> None:
        self._given = tuple(map(_digest_of, _checked(tokens, VARIABLE)))
        self._file, self._stamp = file, (0, 0)
        self._digests = self._given
        if file is not None:
            self.refresh()

    @staticmethod
    def find(file: str | None, environment: Mapping[str, str] = os.environ) -> Tokens:
        """Those of a file, and those of `WINDROW_TOKENS`, separated by commas or spaces."""
        given = environment.get(VARIABLE, "").replace(",", " ").split()
        if VARIABLE in environment and not given:
            raise OptionError(f"{VARIABLE} is set, but holds no token; unset it, or give one")
        return Tokens(given, None if file is None else Path(file).absolute())

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether one of the tokens is in the headers of a request."""
        value = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = value.partition(b" ")
        given = hashlib.sha256(token.strip()).digest()
        found = False
        for digest in self._digests:  # all of them: time must not tell which one it was
            found |= hmac.compare_digest(digest, given)
        return found and scheme.lower() == b"bearer"

    @property
    def digests(self) -> tuple[bytes, ...]:
        """SHA-256 of each token: to derive others from, never to be shown."""
        return self._digests

    def refresh(self) -> None:
        """Read the file again if it has changed; what cannot be read changes nothing later on."""
        assert self._file is not None
        try:
            state = self._file.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            if stamp == self._stamp:
                return
            lines = self._file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise OptionError(f"the tokens in {self._file} cannot be read: {reason}") from None
        tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not tokens:
            raise OptionError(f"{self._file} holds no token; write one on each line")
        self._digests = (*self._given, *map(_digest_of, _checked(tokens, str(self._file))))
        self._stamp = stamp

    @property
    def file(self) -> Path | None:
        """The file they come from."""
        return self._file


def _checked(tokens: Iterable[str], where: str) -> list[str]:
    found = list(tokens)
    for number, token in enumerate(found, 1):
        if len(token) < _SHORTEST or any(c.isspace() for c in token) or not token.isascii():
            raise OptionError(
                f"{where}: token {number} is too short or has spaces; give at least {_SHORTEST} "
                "characters, such as `openssl rand -hex 32` prints"
            )
    return found


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
