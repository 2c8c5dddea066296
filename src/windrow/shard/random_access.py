"""A file that Arrow reads at random, from whoever has its bytes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any


class RandomAccessFile(ABC):
    """What `pyarrow.PythonFile` needs of an object; a subclass gives bytes and says how many."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.closed = False
        self._at = 0

    @abstractmethod
    def bytes_between(self, start: int, end: int) -> Any:
        """The bytes [start, end), as an object with the buffer protocol."""

    @abstractmethod
    def release(self) -> None:
        """Close what the bytes come from."""

    def read(self, count: int = -1) -> Any:
        start = self._at
        self._at = self.size if count < 0 else min(start + count, self.size)
        return self.bytes_between(start, self._at)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.release()
