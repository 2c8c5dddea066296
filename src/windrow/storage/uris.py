"""What a path or URI means, and how others have to be told of it.

Windrow writes a place down in one form: an absolute path, or `scheme://bucket/key`, both as they
are, without escapes. `file:` URIs are escaped; everything else is taken at its word, as the tools
of object stores do. Readers with other rules for URIs get them in their own form, from here.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from windrow.errors import OptionError

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FILE = re.compile(r"file:/", re.IGNORECASE)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def place_of(uri: Any) -> str:
    """The place that a user's path or URI names: an absolute path, or an object store's URI.

    >>> place_of("file:///data/a%20b"), place_of("/data/a%20b"), place_of("s3://bucket/key/")
    ('/data/a b', '/data/a%20b', 's3://bucket/key')
    """
    try:
        text = os.fspath(uri)
    except TypeError:
        text = uri
    if not isinstance(text, str) or not text:
        raise OptionError(f"{uri!r} is not a path or URI")
    if _FILE.match(text):
        text = _path_of(text)
    elif _REMOTE.match(text):
        found = text.rstrip("/")
        if not urlsplit(found).netloc:
            raise OptionError(f"{text!r} names no bucket; write scheme://bucket/key")
        return _checked(found)
    return _checked(os.path.abspath(text))


def _path_of(uri: str) -> str:
    parsed = urlsplit(uri)
    if parsed.netloc not in ("", "localhost"):
        raise OptionError(f"{uri!r} is on host {parsed.netloc!r}; write file:///path, or the path")
    if "?" in uri or "#" in uri:
        raise OptionError(
            f"{uri!r}: in a file: URI a '?' is written %3F and a '#' %23; or write the path"
        )
    return unquote(parsed.path, errors="surrogateescape")


def _checked(place: str) -> str:
    if "\0" in place:
        raise OptionError(f"{place!r}: no file or folder has a NUL in its name")
    try:
        place.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{place!r} is not UTF-8; give the folder another name") from None
    return place


def is_local(place: str) -> bool:
    return not _REMOTE.match(place)


def from_spark(uri: str) -> str:
    """The file that Spark names in an escaped URI (`inputFiles`, `_metadata.file_path`).

    >>> from_spark("file:///data/a%20b/x.parquet"), from_spark("s3a://bucket/a%3Fb.csv")
    ('/data/a b/x.parquet', 's3a://bucket/a?b.csv')
    """
    return _path_of(uri) if _FILE.match(uri) else unquote(uri)


def for_delta(place: str) -> str:
    """A place as delta-rs takes it.

    Raises OptionError for a place that delta-rs would write to and then look for elsewhere: it
    decodes escapes once more than it encodes them, and has characters of its own that it refuses.

    >>> for_delta("/data/a b#1"), for_delta("s3://bucket/a b#1")
    ('/data/a b#1', 's3://bucket/a%20b%231')
    """
    local = is_local(place)
    scheme, separator, rest = place.partition("://") if not local else ("", "", place)
    found = _ESCAPE.search(place) or _CONTROL.search(place)
    if found is None and local:
        found = re.search(r"\\", place)
    if found is None and not local:
        found = re.search(r"(?<=/)\.{0,2}(?=/|$)", rest)
    if found is not None:
        raise OptionError(
            f"{place!r}: a Delta table cannot be kept where {found[0]!r} is part of the path; "
            "choose another name"
        )
    if local:
        return place
    bucket, slash, key = rest.partition("/")
    return f"{scheme}{separator}{bucket}{slash}{quote(key)}"
