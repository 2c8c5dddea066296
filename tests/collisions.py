"""Genuine collisions of chained xxHash64, for rows of int64 columns.

The hash of one 8-byte value is a bijection for any seed, so it can be undone: whatever comes
first in a row, some last value leads to any hash wanted.
"""

from __future__ import annotations

_MASK = 2**64 - 1
_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_INVERSE = {prime: pow(prime, -1, 2**64) for prime in (_P1, _P2, _P3)}

SEED = 42


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & _MASK


def hash_long(value: int, seed: int) -> int:
    """xxHash64 of the eight bytes of `value`; hashes are unsigned, values signed."""
    h = (seed + _P5 + 8) & _MASK
    h ^= _rotl((value & _MASK) * _P2 & _MASK, 31) * _P1 & _MASK
    h = (_rotl(h, 27) * _P1 + _P4) & _MASK
    h = (h ^ (h >> 33)) * _P2 & _MASK
    h = (h ^ (h >> 29)) * _P3 & _MASK
    return h ^ (h >> 32)


def unhash_long(target: int, seed: int) -> int:
    """The value whose hash with `seed` is `target`."""
    h = target ^ (target >> 32)
    h = h * _INVERSE[_P3] & _MASK
    h ^= (h >> 29) ^ (h >> 58)
    h = h * _INVERSE[_P2] & _MASK
    h ^= h >> 33
    h = _rotl((h - _P4) * _INVERSE[_P1] & _MASK, 64 - 27)
    h ^= (seed + _P5 + 8) & _MASK
    value = _rotl(h * _INVERSE[_P1] & _MASK, 64 - 31) * _INVERSE[_P2] & _MASK
    return value - 2**64 if value >= 2**63 else value


def chain(row: tuple[int, ...], seed: int = SEED) -> int:
    """The hash of a row of int64 columns."""
    for value in row:
        seed = hash_long(value, seed)
    return seed


def colliding_row(start: tuple[int, ...], row: tuple[int, ...]) -> tuple[int, ...]:
    """The row that begins with `start`, is one value longer, and has the hash of `row`."""
    return (*start, unhash_long(chain(row), chain(start)))
