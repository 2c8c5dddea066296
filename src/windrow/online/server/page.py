"""The page to try it: one file that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

CONTENT = files(__package__).joinpath("page.html").read_bytes()


def _digests(tag: str) -> str:
    """What is between the tags may run; anything else that gets into the page may not."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), CONTENT, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(one).digest()).decode() for one in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


_POLICY = (
    f"default-src 'none'; connect-src 'self'; style-src {_digests('style')}; "
    f"script-src {_digests('script')}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
