"""A request whose values differ: what its rows would have to be, for what was served to be right.

Each kind of hypothesis is a set of multisets of the rows of its key. Those of many requests are
computed together; the first kind of which one gives all values of the group is the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.consistency.choosing import Chosen, millis
from windrow.consistency.equality import Outcome, Rule, compare
from windrow.consistency.evidence import ARRIVED, NAME, Evidence
from windrow.consistency.history import ServedHistory
from windrow.consistency.hypotheses import Hypothesis, affordable, features_over
from windrow.consistency.report import Cause, Reason
from windrow.consistency.sketches import sketch_of
from windrow.consistency.texts import as_json, length, moment
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME
from windrow.online.log.columns import WRITER
from windrow.rows.types import single_chunk
from windrow.updates import DIFF

_SHOWN = 5  # rows of a reason
_AGREE = (Outcome.EQUAL, Outcome.BOTH_EMPTY)


@dataclass(frozen=True)
class Tested:
    """Multisets of a request's rows: all of them, then those of each kind of hypothesis."""

    every: np.ndarray
    known: np.ndarray  # rows that had arrived when it was answered
    kinds: tuple[Sequence[np.ndarray], ...]

    @property
    def multisets(self) -> list[np.ndarray]:
        return list(itertools.chain(*self.kinds))

    def agreeing(self, agrees: np.ndarray) -> list[list[np.ndarray]]:
        """Of each kind those for which `agrees` is true; it has a place for each multiset."""
        edges = np.cumsum([len(kind) for kind in self.kinds]).tolist()
        several = self.multisets
        return [
            [several[i] for i in range(start, end) if agrees[i]]
            for start, end in itertools.pairwise(edges)
        ]


def agreeing_multisets(
    cases: Sequence[tuple[Case, Tested]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each request, which multisets give all that was served, and all that was backfilled."""
    first = cases[0][0]
    group = first.joined.group
    starts = np.cumsum([0, *(case.rows.num_rows for case, _ in cases)]).tolist()
    hypotheses = [
        Hypothesis(start + places, case.one.example.at)
        for start, (case, tested) in zip(starts, cases, strict=False)
        for places in tested.multisets
    ]
    rows = pa.concat_tables([case.rows for case, _ in cases])
    computed = features_over(first.inputs, group, rows, hypotheses)
    counts = np.array([len(tested.multisets) for _, tested in cases])
    ends = np.cumsum(counts)
    agree = np.ones((2, int(ends[-1])), np.bool_)
    for number, feature in enumerate(group.features):
        function = feature.aggregation.function
        rule = Rule(function.of_nothing == 0, sketch_of(function))
        having = [place for place, (case, _) in enumerate(cases) if number in case.served]
        if not having:
            continue
        # Values of a request beside each of its multisets.
        beside = pa.array(np.repeat(np.arange(len(having)), counts[having]))
        at = np.concatenate([np.arange(ends[i] - counts[i], ends[i]) for i in having])
        over = computed[number].take(pa.array(at))
        for side in range(2):
            values = [(cases[i][0].served, cases[i][0].offline)[side][number] for i in having]
            repeated = pa.concat_arrays(values).take(beside)
            agree[side, at] &= np.isin(compare(repeated, over, rule).outcomes, _AGREE)
    return [
        (agree[0, end - n : end], agree[1, end - n : end])
        for n, end in zip(counts, ends, strict=True)
    ]


@dataclass(frozen=True)
class Case:
    """A request, a group, and the rows of its key up to the request's time, one for each copy."""

    one: Chosen
    joined: JoinedGroup
    inputs: GroupInputs
    rows: pa.Table
    served: Mapping[int, pa.Array]  # by the number of a feature of the group: what was served
    offline: Mapping[int, pa.Array]
    clock: int  # when it was answered, by the clock of whoever takes rows in
    fresh: int | None
    fresher: int | None  # the freshest that the group had been served before

    @staticmethod
    def of(
        one: Chosen,
        joined: JoinedGroup,
        definition: Join | GroupBy,
        found: Evidence,
        key: Sequence[Any],
        history: ServedHistory,
    ) -> Case | None:
        rows = found.of_key(key)
        rows = rows.filter(pa.array(rows.column(EVENT_TIME).to_numpy() < one.example.at))
        if not found.layout.changing:  # each copy by itself
            copies = np.repeat(np.arange(rows.num_rows), rows.column(DIFF).to_numpy())
            rows = rows.take(pa.array(copies))
            rows = rows.set_column(
                rows.column_names.index(DIFF), DIFF, pa.array(np.ones(rows.num_rows, np.int64))
            )
        served, offline = {}, {}
        for number, feature in enumerate(joined.group.features):
            alone = isinstance(definition, GroupBy)
            name = feature.name if alone else joined.column(feature)
            if name in one.row.column_names and one.values[name]["outcome"] is not None:
                value = single_chunk(one.row.column(name))
                served[number], offline[number] = value.field("online"), value.field("offline")
        if not served:
            return None
        clock, writer = one.example.served_clock, one.values.get(WRITER)
        if clock is None:
            return Case(
                one, joined, found.inputs, rows, served, offline, one.example.at, None, None
            )
        group = joined.group.name
        fresh = millis((one.values.get("_log_fresh") or {}).get(group))
        true = clock - history.clock_ahead(writer, clock)
        fresher = history.fresher(group, clock)
        return Case(one, joined, found.inputs, rows, served, offline, true, fresh, fresher)

    def tested(self) -> Tested:
        """The hypotheses, kind by kind."""
        every = np.arange(self.rows.num_rows)
        arrived = self._arrived
        known = every[~(arrived > self.clock)]  # NaN: nobody knows
        times = np.unique(arrived[~np.isnan(arrived)])[::-1]
        most = affordable(every.size)
        some, recent = times[:most].tolist(), known[::-1][:most].tolist()
        cuts = [every[~(arrived >= time)] for time in some]  # as it was known up to some time
        ones = [known[known != row] for row in recent]
        batches = [known[arrived[known] != time] for time in some]
        again = [np.append(known, row) for row in recent]
        again += [np.append(known, known[arrived[known] == time]) for time in some]
        return Tested(every, known, ([every], cuts, ones, batches, again))

    def reasons(self, tested: Tested, agrees: np.ndarray, is_offline: np.ndarray) -> list[Reason]:
        """The first kind of hypothesis that gives what was served."""
        if agrees[0] or not is_offline[0]:
            return []  # this group agrees; or rows have changed since
        every, known = tested.every, tested.known
        without, lost, batch, twice = tested.agreeing(agrees)
        if without:
            return [self._missing(np.setdiff1d(every, without[0]))]
        if lost:
            return [self._lost(np.array([np.setdiff1d(known, kept)[0] for kept in lost]))]
        if batch:
            return [self._missing(np.setdiff1d(known, batch[0]))]
        if twice:
            return [self._twice([kept[known.size :] for kept in twice])]
        return self._damaged(self._arrived)

    @property
    def _arrived(self) -> np.ndarray:
        found: np.ndarray = self.rows.column(ARRIVED).cast(pa.float64()).to_numpy()
        return found  # NULL is NaN

    def _missing(self, gone: np.ndarray) -> Reason:
        """Rows that the served value is without."""
        arrived = self._arrived[gone]
        first, count = np.nanmin(arrived), gone.size
        what = f"{count:,} rows" if count > 1 else "a row"
        if first > self.clock:
            event = int(self.rows.column(EVENT_TIME)[int(gone[0])].as_py())
            says = (
                f"{what} arrived {length(int(first) - self.clock)} after it was served, "
                f"{length(int(first) - event)} after the time it has"
            )
            return self._reason(Cause.ARRIVED_LATER, says, gone)
        fresh = self.fresh
        if fresh is not None and first > fresh:
            if self.fresher is not None and self.fresher > first:
                says = (
                    f"the records were fresh up to {moment(fresh)}, and had been served fresh up "
                    f"to {moment(self.fresher)} before: the store has gone back, as one that was "
                    f"restored from a backup. {what} that it had is missing"
                )
                return self._reason(Cause.STORE_BEHIND, says, gone)
            says = (
                f"{what} had arrived, but the records were brought up to {moment(fresh)} only: it "
                "was taken into account after it was served"
            )
            return self._reason(Cause.ARRIVED_LATER, says, gone)
        return self._lost(gone, together=True)

    def _lost(self, gone: np.ndarray, *, together: bool = False) -> Reason:
        if not together and gone.size == 1 and self._has_twin(int(gone[0])):
            says = "a row that the source has twice was counted once"
            return self._reason(Cause.TWICE, says, gone)
        which = "this row" if gone.size == 1 else f"one of these {gone.size:,} rows"
        if together and gone.size > 1:
            which = f"these {gone.size:,} rows, which arrived together,"
        says = f"{which} had arrived, and the records were brought past it, but it is not counted"
        return self._reason(Cause.LOST, says, gone)

    def _twice(self, extra: Sequence[np.ndarray]) -> Reason:
        rows = np.unique(np.concatenate(extra))
        which = "this row" if rows.size == 1 else f"one of these {rows.size:,} rows"
        if len(extra) == 1 and rows.size > 1:
            which = f"each of these {rows.size:,} rows"
        return self._reason(Cause.TWICE, f"{which} was counted twice", rows)

    def _damaged(self, arrived: np.ndarray) -> list[Reason]:
        fresh = self.fresh
        if fresh is None or (arrived > fresh).any():
            return []
        says = (
            "all its rows were there, and no row missing or counted twice gives what was served: "
            f"the record is wrong; `windrow upload {self.joined.group.name}` writes it anew"
        )
        return [self._reason(Cause.DAMAGED, says, np.arange(self.rows.num_rows), proven=False)]

    def _has_twin(self, row: int) -> bool:
        """Whether the same row is there once more."""
        names = [name for name in self.rows.column_names if name not in (ARRIVED, NAME, DIFF)]
        rows: list[dict[str, Any]] = self.rows.select(names).to_pylist()
        return rows.count(rows[row]) > 1

    def _reason(
        self, cause: Cause, says: str, places: np.ndarray, *, proven: bool = True
    ) -> Reason:
        layout, group = self.inputs.layout, self.joined.group
        names = dict(zip(layout.values, layout.inputs, strict=True))
        shown = []
        for row in self.rows.take(pa.array(places[-_SHOWN:])).to_pylist():
            arrived = row[ARRIVED]
            values = {name: as_json(row[column]) for column, name in names.items()}
            shown.append(
                {
                    "source": row[NAME],
                    "time": moment(row[EVENT_TIME]),
                    "arrived": None if arrived is None else moment(arrived),
                    **values,
                }
            )
        return Reason(cause, f"{group.name}: {says}", tuple(shown), proven)
