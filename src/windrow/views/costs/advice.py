"""Advice on `expected_group_size`: which levels of a stack of reductions are worth their records.

A reduction or a top-k over hashed groups is a stack of levels. The first holds all rows; each level
keeps, of every 16th part of a group, what may still win, and hands it to the level above. So
the level that is `n` from the top holds at most `16 ** n` rows of a group, and one that holds
nearly as many records as the level below it rejects nothing: it costs its records, and saves
no work. That happens where groups are smaller than they were expected to be.

`expected_group_size` decides how many levels there are: as many as it takes to get down from that
size to one, by 16 at each (see `windrow.views.plan.hints`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from windrow.views.plan.hints import FAN_OUT

NEARLY = 0.9  # of the records of the level below: then a level is worth nothing


@dataclass(frozen=True)
class Level:
    """One level of a stack, the first at the bottom: what it keeps, and how many records."""

    arrangement: str
    records: int


@dataclass(frozen=True)
class Advice:
    """A better size, and what it saves; or the same size, and why."""

    levels: int  # that there are
    better: int  # levels that there should be
    expected_group_size: int
    saves: int  # records

    def __str__(self) -> str:
        if self.better >= self.levels:
            return f"{self.levels} levels, each of which reduces what the next one has to look at"
        gone = self.levels - self.better
        return (
            f"EXPECTED_GROUP_SIZE({self.expected_group_size}) would save {self.saves:,} records: "
            f"{gone} of {self.levels} levels hold{'s' if gone == 1 else ''} nearly as many as the "
            f"level below {'it' if gone == 1 else 'them'}"
        )


def advise(levels: Sequence[Level]) -> Advice | None:
    """What would be better than these levels; None if there are fewer than two.

    The records of a level that is worth nothing are saved: the level below it, which has to be
    there, does the same. All levels between the first and the last useful one count, since a
    stack has no gaps: sizes are what decides, and they fall from level to level.
    """
    if len(levels) < 2 or not levels[0].records:
        return None
    useless = [
        above
        for below, above in itertools.pairwise(levels)
        if above.records >= NEARLY * below.records
    ]
    better = len(levels) - len(useless)
    saves = sum(level.records for level in useless)
    return Advice(len(levels), better, FAN_OUT**better, saves)
