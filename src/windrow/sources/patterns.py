"""Patterns of paths, as Spark's readers take them: which files beneath a folder they mean."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"[*?{\[]")


def split_pattern(uri: str) -> tuple[str, str | None]:
    """The folder that a pattern begins with, and the rest; None if it is no pattern.

    >>> split_pattern("/data/2024-*/x.csv"), split_pattern("/data/x.csv")
    (('/data', '2024-*/x.csv'), ('/data/x.csv', None))
    """
    parts = uri.split("/")
    for place, part in enumerate(parts):
        if _SPECIAL.search(part):
            return "/".join(parts[:place]) or "/", "/".join(parts[place:])
    return uri, None


def pattern_of(text: str) -> re.Pattern[str]:
    """Matches the names of files that a pattern means; a folder means all that is beneath it.

    >>> found = pattern_of("{a,b}/[0-9]?*.csv")
    >>> names = ["a/12.csv", "b/1x/y.csv", "b/12.csv/y", "a/1.csv"]
    >>> [bool(found.fullmatch(name)) for name in names]
    [True, False, True, False]
    """
    found, place, depth = [], 0, 0
    while place < len(text):
        one = text[place]
        place += 1
        if one == "\\" and place < len(text):
            found.append(re.escape(text[place]))
            place += 1
        elif one == "*":
            found.append("[^/]*")
        elif one == "?":
            found.append("[^/]")
        elif one == "[" and "]" in text[place + 1 :]:
            end = text.index("]", place + 1)
            inner = text[place:end].replace("\\", "\\\\").replace("[", "\\[")
            found.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
            place = end + 1
        elif one == "{":
            found.append("(?:")
            depth += 1
        elif one == "}" and depth:
            found.append(")")
            depth -= 1
        elif one == "," and depth:
            found.append("|")
        else:
            found.append(re.escape(one))
    return re.compile("".join(found) + ")" * depth + "(?:/.*)?")
