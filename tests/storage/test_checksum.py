from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.storage.checksum import checksum, chunk_sum


def test_known_sums() -> None:
    """From the specification of xxHash and its reference implementation."""
    assert checksum(b"") == 0xEF46DB3751D8E999
    assert checksum(b"a") == 0xD24EC4F1A98C6E5B
    assert checksum(b"abc") == 0x44BC2CF5AD770999


@given(st.binary(min_size=1, max_size=300), st.data())
def test_one_flipped_bit_changes_the_sum(content: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    assert checksum(flipped) != checksum(content)
    assert chunk_sum(flipped) != chunk_sum(content)


@given(st.binary(max_size=300), st.integers(1, 7))
def test_where_the_bytes_lie_does_not_matter(content: bytes, offset: int) -> None:
    moved = memoryview(bytes(offset) + content)[offset:]
    assert checksum(moved) == checksum(content)
    assert checksum(np.frombuffer(content, np.uint8).copy()) == checksum(content)
    assert checksum(pa.py_buffer(content)) == checksum(content)
    assert chunk_sum(moved) == chunk_sum(content)


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=40))
def test_what_is_cut_off_or_added_changes_the_sum(content: bytes, more: bytes) -> None:
    assert chunk_sum(content + more) != chunk_sum(content)
    assert chunk_sum(content + bytes(len(more))) != chunk_sum(content)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40), st.data())
def test_words_that_change_places_change_the_sum(words: list[int], data: st.DataObject) -> None:
    a = data.draw(st.integers(0, len(words) - 1))
    b = data.draw(st.integers(0, len(words) - 1))
    moved = list(words)
    moved[a], moved[b] = words[b], words[a]
    found, expected = (chunk_sum(np.array(one, np.uint64)) for one in (moved, words))
    assert (found == expected) == (moved == words)
