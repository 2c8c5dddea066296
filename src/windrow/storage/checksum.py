"""Checksums of a file's bytes: they find damage at the speed of memory.

xxHash64 for whatever is small, and a sum that is three times as fast for column chunks, which are
compared each time they are read. Neither is a signature: a writer of the file can write the sum as
well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numba import njit

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)


def checksum(data: Any) -> int:
    """The xxHash64, with seed 0, of an object with the buffer protocol.

    >>> f"{checksum(b'abc'):x}"
    '44bc2cf5ad770999'
    """
    return xxhash.xxh64_intdigest(data)


def chunk_sum(data: Any) -> int:
    """A checksum for many bytes: of each word, and of the product of its halves, the sum.

    Before they are multiplied, words are mixed with their places, so that it matters where they
    stand. Unlike the steps of xxHash64, those of a sum need not wait for each other, and a
    processor does several at a time.

    >>> f"{chunk_sum(b'abc'):x}"
    '591029e334df300c'
    """
    return int(_chunk_sum(*_words(data)))


def _words(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The 64-bit words of an object with the buffer protocol, and up to seven bytes after them."""
    content = np.frombuffer(data, np.uint8)
    if content.flags.writeable:
        content.flags.writeable = False  # of one type, so that it is compiled once
    words = content[: content.size // 8 * 8].view(np.uint64)
    return words, content[words.size * 8 :]


@njit(inline="always")
def _rotl(x: Any, r: Any) -> Any:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@njit(inline="always")
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@njit(inline="always")
def _added(words: Any, first: Any, last: Any) -> Any:
    """The sum of the words from `first` to `last`, and that of the products of their halves."""
    total, products = np.uint64(0), np.uint64(0)
    for i in range(last - first):
        word = np.uint64(words[first + i])
        mixed = word ^ (np.uint64(i + 1) * _P1)
        products += (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
        total += word
    return total, products


@njit(cache=True, nogil=True)
def word_sum(words: Any, first: Any, last: Any) -> Any:
    """The `chunk_sum` of the bytes of some words of an array; for compiled code."""
    total, products = _added(words, first, last)
    length = np.uint64((last - first) * 8)
    return _avalanche(_rotl(products, 31) * _P1 + total * _P2 + length * _P3)


@njit(cache=True, nogil=True)
def _chunk_sum(words: Any, rest: Any) -> Any:
    total, products = _added(words, 0, words.size)
    word = np.uint64(0)
    for b in range(rest.size):
        word |= np.uint64(rest[b]) << np.uint64(8 * b)
    length = np.uint64(words.size * 8 + rest.size)
    return _avalanche(_rotl(products, 31) * _P1 + (total + word) * _P2 + length * _P3)
