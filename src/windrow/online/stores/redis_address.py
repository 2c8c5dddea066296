"""The address of a Redis server, with what may be shown of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from windrow.errors import OptionError

_PORT = 6379
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
_TLS = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"}
_FORMS = (
    "write redis://[user:password@]host[:port][/db], rediss://... (TLS) or "
    "unix://[user:password@]/path/of/the.sock[?db=0]; in names and passwords, '@' is %40, ':' "
    "%3A, '/' %2F, '?' %3F, '#' %23 and '%' %25"
)


@dataclass(frozen=True)
class RedisAddress:
    """`url` may hold a password, and is never shown; `shown` is what errors and users see."""

    url: str = field(repr=False)
    shown: str
    is_local: bool

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self.shown.startswith("rediss:")

    @staticmethod
    def parse(text: str) -> RedisAddress:
        """
        >>> RedisAddress.parse("redis://ann:secret@cache/1")
        RedisAddress(shown='redis://cache:6379/1', is_local=False)
        """
        try:
            parts = urlsplit(text)
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError:
            raise _wrong(text) from None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        allowed = {"redis": set(), "rediss": _TLS, "unix": {"db"}}.get(scheme)
        if allowed is None or not text[len(scheme) :].startswith("://") or parts.fragment:
            raise _wrong(text)
        for name in options.keys() - allowed:
            # What follows it may be a password.
            raise OptionError(
                f"{redacted(text)!r}: {name!r} is not an option of {scheme}://; "
                + (f"known: {', '.join(sorted(allowed))}" if allowed else "there are none")
            )
        if scheme == "unix":
            if not parts.path.startswith("/") or not options.get("db", "0").isdecimal():
                raise _wrong(text)
            return RedisAddress(text, f"unix://{parts.path}", True)
        database = parts.path.strip("/") or "0"
        if not host or not (database.isdecimal() and database.isascii()) or port == 0:
            raise _wrong(text)
        name = f"[{host}]" if ":" in host else host
        shown = f"{scheme}://{name}:{port or _PORT}/{database}"
        return RedisAddress(text, shown, _LOOPBACK.fullmatch(host) is not None)


def redacted(text: str) -> str:
    """An address that may be wrong in any way, without what may be secret in it.

    >>> redacted("redis://ann:p/w@d@host/1?password=x")
    'redis://***@host/1?***'
    """
    before, at, after = text.rpartition("@")
    if at:
        text = re.sub(r"(:/*).*", r"\1", before, flags=re.DOTALL) + "***@" + after
    return re.sub(r"\?.+", "?***", text, flags=re.DOTALL)


def _wrong(text: str) -> OptionError:
    return OptionError(f"{redacted(text)!r} is not the address of a Redis server; {_FORMS}")
