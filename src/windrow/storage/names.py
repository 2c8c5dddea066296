"""Names of things that rest in a store: new ids, and digests of what they hold."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any


def new_id() -> str:
    """A name that no one else has."""
    return uuid.uuid4().hex[:16]


def digest(*parts: Any) -> str:
    """A name for what `parts` say, the same in every process: 16 hexadecimal digits.

    Parts are whatever JSON writes; everything else is taken by its text.

    >>> digest("views", ["user_id"]) == digest("views", ("user_id",))
    True
    """
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]
