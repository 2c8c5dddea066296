"""Many records, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Record = tuple[bytes, bytes]


def chunks(records: Iterable[Record], count: int, size: int) -> Iterator[list[Record]]:
    """Lists of at most `count` records, and of `size` bytes or little more.

    >>> list(chunks([(b"a", b"12"), (b"b", b"3"), (b"c", b"")], 2, 100))
    [[(b'a', b'12'), (b'b', b'3')], [(b'c', b'')]]
    """
    chunk: list[Record] = []
    taken = 0
    for record in records:
        chunk.append(record)
        taken += len(record[0]) + len(record[1])
        if len(chunk) >= count or taken >= size:
            yield chunk
            chunk, taken = [], 0
    if chunk:
        yield chunk
