"""Two words as one, for rows whose second words lie close together, as times do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from windrow.words.comparing import merge_sort

_SPARE_BITS = 3  # of a packed word, beyond those that number all rows


@njit(cache=True, nogil=True)
def _pack(words: Any, low: Any, lowest: Any, shift: Any, bits: Any) -> Any:
    packed = np.empty(words.shape[1], np.uint64)
    for i in range(packed.size):
        top = (np.uint64(words[0, i]) - np.uint64(low)) >> np.uint64(shift)
        packed[i] = (top << np.uint64(bits)) | (np.uint64(words[1, i]) - np.uint64(lowest))
    return packed


@dataclass(frozen=True)
class Packing:
    """One word of two: the leading bits of the first, and all `bits` of the second."""

    low: int
    lowest: int
    shift: int  # bits of the first word that are left out
    bits: int

    @staticmethod
    def of(words: np.ndarray, low: int, high: int) -> Packing | None:
        """None if so little of the first words, which lie in [low, high], is left that many of
        them would look alike."""
        if words.shape[0] < 2:
            return None
        lowest = int(words[1].min())
        bits = (int(words[1].max()) - lowest).bit_length()
        if bits + words.shape[1].bit_length() + _SPARE_BITS > 64:
            return None
        return Packing(low, lowest, max((high - low).bit_length() + bits - 64, 0), bits)

    def pack(self, words: np.ndarray) -> np.ndarray:
        packed: np.ndarray = _pack(words, self.low, self.lowest, self.shift, self.bits)
        return packed

    def repair(self, words: np.ndarray, order: np.ndarray, packed: np.ndarray) -> int:
        """Sort rows of the same leading bits whose first words differ; `packed` is in order.

        Returns how many words are equal wherever neighbours in `packed` are, which serves to tell
        ties from then on.
        """
        if not self.shift:
            return 2
        # First words in order, fetched together: one by one, each would be waited for.
        return 0 if _sort_mixed(words, words[0][order], order, packed, self.bits) else 2


@njit(cache=True, nogil=True)
def _sort_mixed(words: Any, firsts: Any, order: Any, packed: Any, bits: Any) -> Any:
    """Sort stretches of mixed first words; whether some neighbours in `packed` are equal although
    their first two words are not."""
    scratch = np.empty(0, np.int64)
    unknown = False
    n, start = order.size, 0
    while start < n:
        top, first = packed[start] >> np.uint64(bits), firsts[start]
        end, mixed = start + 1, False
        while end < n and packed[end] >> np.uint64(bits) == top:
            mixed |= firsts[end] != first
            end += 1
        if mixed:
            if scratch.size < end - start:
                scratch = np.empty(2 * (end - start), np.int64)
            order[start:end] = np.sort(order[start:end])  # rows with equal words keep their order
            merge_sort(words, order, start, end, scratch)
            # By turns two values with these leading bits: nothing outside of the stretch has them.
            packed[start] = top << np.uint64(bits)
            unknown |= bits == 0
            for p in range(start + 1, end):
                a, b = order[p - 1], order[p]
                other = words[0, a] != words[0, b] or words[1, a] != words[1, b]
                packed[p] = packed[p - 1] ^ np.uint64(other and bits > 0)
        start = end
    return unknown
