"""Values, times and sizes as people read them; whatever they hold, they are text.

Characters that change how others are shown (controls, marks of direction, zero widths) are written
as what they are: a name that would show another way round than it is stored is told apart.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

SHORT = 160  # characters of a value in a table
INLINE = 2_000  # of a value that can be opened where it stands
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(text: object) -> str:
    """Text with hidden characters written out.

    >>> visible("a\\u202eb")
    'a⟨U+202E⟩b'
    """
    return _HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def short(text: object, most: int = SHORT) -> str:
    """The beginning of a text, on one line.

    >>> short("abcdef", 4)
    'abc…'
    """
    given = str(text)
    line = visible(given[: most + 1].replace("\n", " "))
    return line if len(given) <= most and len(line) <= 8 * most else f"{line[: most - 1]}…"


def value(found: Any) -> str:
    """A value of a row or a feature.

    >>> [value(one) for one in (None, 1234567, 0.5, "x", [1, None], {"a": 2})]
    ['NULL', '1234567', '0.5', 'x', '[1, NULL]', '{a: 2}']
    """
    match found:
        case None:
            return "NULL"
        case bool():
            return "true" if found else "false"
        case float():
            return repr(found) if math.isfinite(found) else str(found)
        case Decimal():
            return format(found, "f")
        case bytes():
            return f"0x{found.hex()}"
        case datetime():
            return found.isoformat(" ", "milliseconds" if found.microsecond else "seconds")
        case date():
            return found.isoformat()
        case dict():
            return "{" + ", ".join(f"{value(k)}: {value(v)}" for k, v in found.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value, found)) + "]"
        case _:
            return str(found)


def rounded(found: Any) -> str:
    """A number in three digits, with its magnitude; anything else as it is.

    >>> [rounded(one) for one in (0.0, 1.8467712317008e-16, 0.25, None)]
    ['0', '1.85e-16', '0.25', 'NULL']
    """
    return f"{found:.3g}" if isinstance(found, int | float) else value(found)


def moment(time: int | None) -> str:
    """A time of milliseconds, in UTC.

    >>> moment(1714521600123)
    '2024-05-01 00:00:00.123'
    """
    if time is None:
        return "never"
    try:
        found = _EPOCH + timedelta(milliseconds=time)
    except OverflowError:
        return str(time)
    return f"{found:%Y-%m-%d %H:%M:%S}" + (f".{time % 1000:03}" if time % 1000 else "")


def machine_moment(time: int) -> str:
    """The same for machines: ISO 8601, empty where there is none."""
    try:
        return f"{_EPOCH + timedelta(milliseconds=time):%Y-%m-%dT%H:%M:%S}.{time % 1000:03}Z"
    except OverflowError:
        return ""


def length(milliseconds: float) -> str:
    """A length of time, roughly.

    >>> [length(one) for one in (0.4, 40, 1_500, 61_000, 3 * 3_600_000, 49 * 3_600_000)]
    ['0.4 ms', '40 ms', '1.5 s', '1 min 1 s', '3 h', '2 d 1 h']
    """
    if milliseconds < 0:
        return f"−{length(-milliseconds)}"
    if milliseconds < 1_000:
        return f"{milliseconds:.2g} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, below, small in (("min", 60, 60), ("h", 48, 60), ("d", math.inf, 24)):
        size = {"min": 60, "h": 3_600, "d": 86_400}[unit]
        if seconds / size < below:
            whole, rest = int(seconds // size), int(seconds % size // (size / small))
            lesser = {"min": "s", "h": "min", "d": "h"}[unit]
            return f"{whole} {unit} {rest} {lesser}" if rest else f"{whole} {unit}"
    raise AssertionError


def size(bytes_: float) -> str:
    """A number of bytes.

    >>> [size(one) for one in (512, 20_480, 3 << 30)]
    ['512 B', '20 KiB', '3 GiB']
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes_ < 1024:
            return f"{bytes_:,.3g} {unit}" if bytes_ < 1000 else f"{bytes_:,.0f} {unit}"
        bytes_ /= 1024
    return f"{bytes_:,.3g} TiB"


def share(part: float) -> str:
    """A share in percent; one that is not all of it is never shown as such.

    >>> share(1), share(0.99996), share(0.5), share(0)
    ('100 %', '99.99 %', '50 %', '0 %')
    """
    if part in (0, 1):
        return f"{part:.0%}".replace("%", " %")
    percent = min(max(math.floor(part * 10_000) / 100, 0.01), 99.99)
    return f"{percent:g} %"


def typed(text: str, type_: str) -> Any:
    """What was typed into a form, as a value of a column: empty is NULL, but for texts."""
    if type_ in ("string", "large_string"):
        return text
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
