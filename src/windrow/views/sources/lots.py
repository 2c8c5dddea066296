"""Lots: which stored rows of a source are from which of its files.

Each stored row has a number. A *lot* is a set of numbers and a set of files, such that the rows
with these numbers are the rows of these files. A file that is read is a lot of its own. A commit of
a Delta table whose change data are read makes one lot of all that it touched: rows have moved
between its files, and nobody has looked where to.

    read f, g            {1: f} {2: g}
    UPDATE, f -> f'      {1: f'} {2: g}            the changes are stored with number 1
    OPTIMIZE, f' g -> h  {1 2: h}                  nothing is read

The rows of a lot can be retracted, as a whole, so that a file can go at any time: if others of its
lot remain, they are read again. Differences of files need no more than that, whatever happened
before; so a source may take up with change data, and go back to files, with every look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.sources.delta_log import DeltaCommit


@dataclass(frozen=True)
class FileRead:
    """A file to read; its rows get `number`. With `changes`, it is a file of change data."""

    name: str
    number: int
    changes: bool = False


@dataclass
class _Lot:
    numbers: set[int]
    files: set[str]
    reads: list[FileRead] = field(default_factory=list)


class Lots:
    """The lots of a source as of its last commit, and what becomes of them."""

    def __init__(self, files: Mapping[str, Any], numbers: Mapping[str, Any], next: int) -> None:
        self.next = next  # the number of the next lot
        self.gone: set[int] = set()  # numbers whose stored rows are to be retracted
        self._stamps = {name: str(stamp) for name, (_, stamp) in files.items()}
        self._of: dict[str, _Lot] = {}
        known: dict[int, _Lot] = {}
        for name, (first, _) in files.items():
            if first not in known:
                known[first] = _Lot(set(numbers.get(str(first), [first])), set())
            known[first].files.add(name)
            self._of[name] = known[first]

    def _all(self) -> list[_Lot]:
        return list({id(lot): lot for lot in self._of.values()}.values())

    @property
    def reads(self) -> list[FileRead]:
        """The files to read."""
        return [read for lot in self._all() for read in lot.reads]

    @property
    def files(self) -> dict[str, list[Any]]:
        """For the catalogue: each file with the first number of its lot, and its stamp."""
        return {
            name: [min(self._of[name].numbers), self._stamps[name]] for name in sorted(self._of)
        }

    @property
    def numbers(self) -> dict[str, list[int]]:
        """For the catalogue: the numbers of lots that have several, by the first."""
        found = (sorted(lot.numbers) for lot in self._all() if len(lot.numbers) > 1)
        return {str(numbers[0]): numbers for numbers in found}

    def match(self, found: Mapping[str, str]) -> None:
        """Make them those of the files that are there now, by their stamps.

        >>> lots = Lots({"a": [1, "x"], "b": [2, "x"]}, {}, 3)
        >>> lots.match({"b": "y", "c": "x"})
        >>> [(read.name, read.number) for read in lots.reads], sorted(lots.gone)
        ([('b', 3), ('c', 4)], [1, 2])
        """
        for name in [name for name in self._of if self._stamps[name] != found.get(name)]:
            self._break(name)
        for name in sorted(found):
            if name not in self._of:
                self.add(name, found[name])

    def follow(self, commit: DeltaCommit) -> None:
        """Do as a commit of a Delta table did.

        >>> lots = Lots({"f": [1, ""], "g": [2, ""]}, {}, 3)
        >>> lots.follow(DeltaCommit(7, ("h",), ("f", "g"), ("cdc",), True))
        >>> lots.files, lots.numbers, lots.reads
        ({'h': [1, '']}, {'1': [1, 2]}, [FileRead(name='cdc', number=1, changes=True)])
        >>> lots.follow(DeltaCommit(8, (), ("h",), (), False))
        >>> lots.files, sorted(lots.gone), lots.reads
        ({}, [1, 2], [])
        """
        if commit.rearranged:
            self._rearrange(commit)
            return
        for name in commit.removed:
            if name in self._of:
                rest = self._break(name)
                for other in sorted(rest):
                    self.add(other, "")
        for name in commit.added:
            if name not in self._of:  # the same file may be added twice, with other statistics
                self.add(name, "")

    def add(self, name: str, stamp: str) -> None:
        """A file that is to be read."""
        lot = _Lot({self.next}, {name}, [FileRead(name, self.next)])
        self.next += 1
        self._of[name], self._stamps[name] = lot, stamp

    def _break(self, name: str) -> set[str]:
        """Retract the lot of a file that is gone; the other files of the lot."""
        lot = self._of.get(name)
        if lot is None:
            return set()
        self.gone |= lot.numbers
        for one in lot.files:
            del self._of[one]
        return lot.files - {name}

    def _rearrange(self, commit: DeltaCommit) -> None:
        touched = {id(self._of[n]): self._of[n] for n in commit.removed if n in self._of}
        lots = list(touched.values())
        if not lots and not commit.added and not commit.changes:
            return
        numbers = set().union(*(lot.numbers for lot in lots))
        if not numbers:
            numbers, self.next = {self.next}, self.next + 1
        files = set().union(*(lot.files for lot in lots)) - set(commit.removed)
        reads = [read for lot in lots for read in lot.reads]
        number = min(numbers)
        reads += [FileRead(name, number, changes=True) for name in commit.changes]
        merged = _Lot(numbers, files | set(commit.added), reads)
        for name in _names(lots):
            self._of.pop(name, None)
        for name in merged.files:
            self._of[name] = merged
            self._stamps[name] = ""
        if not merged.files:
            # Nothing is left to hold these rows, so none may be left of them either.
            self.gone |= numbers


def _names(lots: Iterable[_Lot]) -> list[str]:
    return [name for lot in lots for name in lot.files]
