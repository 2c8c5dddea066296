"""Why a served value differs: reasons, each with the rows that show it.

What the log says comes first: another version, a clock that was off, a record that was damaged.
Then hypotheses about the rows are tested: which rows would have to be there or not, for the
definition to give what was served? Where one gives all values of the request's group, it is proven.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.consistency.choosing import Chosen, millis
from windrow.consistency.equality import Outcome, Rule, compare
from windrow.consistency.evidence import ARRIVED, NAME, Evidence, evidence
from windrow.consistency.history import ServedHistory
from windrow.consistency.hypotheses import Hypothesis, affordable, features_over
from windrow.consistency.logs import joined_groups
from windrow.consistency.report import Cause, Example, Reason
from windrow.consistency.sketches import sketch_of
from windrow.consistency.texts import as_json, length, moment
from windrow.errors import WindrowError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.features.inputs.layout import EVENT_TIME
from windrow.online.log.columns import ASKED, ERROR, WRITER
from windrow.rows.types import single_chunk
from windrow.spark.session import Engine
from windrow.updates import DIFF

TOLERATED = 1_000  # milliseconds by which clocks may differ
_SHOWN = 5  # rows of a reason
_AGREE = (Outcome.EQUAL, Outcome.BOTH_EMPTY)


@dataclass
class Explainer:
    """Explains the examples of one run."""

    engine: Engine
    options: dict[str, str] | None
    definition: Join | GroupBy
    version: str | None  # as it is defined now
    resolve: Callable[[GroupBy], GroupBy]
    history: ServedHistory
    _evidence: dict[str, Evidence | None] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], list[Reason]] = field(default_factory=dict)

    def explain(self, chosen: Sequence[Chosen]) -> list[Example]:
        groups = {one.group.name: one for one in joined_groups(self.definition)}
        for name, joined in groups.items():
            mine = [one for one in chosen if one.group in (name, None)]
            if mine:
                self._evidence[name] = self._rows(joined, mine)
        found = []
        for one in chosen:
            wanted = [one.group] if one.group is not None else list(groups)
            reasons = self._told(one)
            for name in wanted:
                reasons += self._tested(one, groups[name])
            if not reasons:
                reasons = [_unexplained(one)]
            found.append(replace(one.example, reasons=tuple(reasons)))
        return found

    # What the log says

    def _told(self, one: Chosen) -> list[Reason]:
        found, example, values = [], one.example, one.values
        error = values.get(ERROR)
        if error is not None:
            found.append(Reason(Cause.DAMAGED, f"the request failed: {error}", (), True))
        served = example.served_version
        if served is not None and self.version is not None and served != self.version:
            says = f"it was served by version {served}, and is defined as {self.version} now"
            found.append(Reason(Cause.DEFINITION, says))
        clock = example.served_clock
        if clock is None:
            return found
        ahead = self.history.clock_ahead(values[WRITER], clock)
        if abs(ahead) > TOLERATED:
            which = "ahead of" if ahead > 0 else "behind"
            says = f"the server's clock was {length(ahead)} {which} that of the store"
            found.append(Reason(Cause.CLOCK, says))
        elif not values.get(ASKED) and abs(example.at - clock) > TOLERATED:
            says = (
                f"the request was answered for {moment(example.at)}, its now, and logged at "
                f"{moment(clock)}: {length(example.at - clock)} apart"
            )
            found.append(Reason(Cause.CLOCK, says))
        elif not values.get(ASKED) and (example.fresh_at or 0) - example.at > TOLERATED:
            off = (example.fresh_at or 0) - example.at
            says = f"the records were fresh up to {length(off)} after the server's now"
            found.append(Reason(Cause.CLOCK, says))
        return found

    # What rows say

    def _rows(self, joined: JoinedGroup, mine: Sequence[Chosen]) -> Evidence | None:
        try:
            group = self.resolve(joined.group)
            inputs = GroupInputs.bind(group, self.engine, self.options)
            keys = [self._key(joined, one) for one in mine]
            there = list(dict.fromkeys(key for key in keys if None not in key))
            if not there:
                return None
            names, types = inputs.layout.keys, inputs.layout.key_types
            columns = [
                pa.array(list(values), type_)
                for values, type_ in zip(zip(*there, strict=True), types, strict=True)
            ]
            return evidence(inputs, self.engine, pa.table(columns, names=names))
        except WindrowError:  # the source may have changed so that it cannot be read; what was
            return None  # compared is there all the same

    def _key(self, joined: JoinedGroup, one: Chosen) -> tuple[Any, ...]:
        return tuple(one.values[name] for name in joined.left_keys)

    def _tested(self, one: Chosen, joined: JoinedGroup) -> list[Reason]:
        place = (one.request, joined.group.name)
        if place not in self._known:
            self._known[place] = self._test(one, joined)
        return self._known[place]

    def _test(self, one: Chosen, joined: JoinedGroup) -> list[Reason]:
        found = self._evidence.get(joined.group.name)
        key = self._key(joined, one)
        if found is None or None in key or one.values.get(ERROR) is not None:
            return []
        case = _Case.of(one, joined, self.definition, found, key, self.history)
        return [] if case is None else case.reasons()


def _unexplained(one: Chosen) -> Reason:
    return Reason(
        Cause.UNEXPLAINED,
        "neither the log nor the rows that are known now tell why",
    )


@dataclass(frozen=True)
class _Case:
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
    ) -> _Case | None:
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
            return _Case(
                one, joined, found.inputs, rows, served, offline, one.example.at, None, None
            )
        group = joined.group.name
        fresh = millis((one.values.get("_log_fresh") or {}).get(group))
        true = clock - history.clock_ahead(writer, clock)
        fresher = history.fresher(group, clock)
        return _Case(one, joined, found.inputs, rows, served, offline, true, fresh, fresher)

    def reasons(self) -> list[Reason]:
        """The first kind of hypothesis that gives what was served; all are computed together."""
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
        tested = [every, *cuts, *ones, *batches, *again]
        agrees, is_offline = self._agreeing(tested)
        if agrees[0] or not is_offline[0]:
            return []  # this group agrees; or rows have changed since
        kinds = np.cumsum([1, len(cuts), len(ones), len(batches)])
        without, lost, batch, twice = (
            [tested[i] for i in range(start, end) if agrees[i]]
            for start, end in itertools.pairwise([*kinds.tolist(), len(tested)])
        )
        if without:
            return [self._missing(np.setdiff1d(every, without[0]))]
        if lost:
            return [self._lost(np.array([np.setdiff1d(known, kept)[0] for kept in lost]))]
        if batch:
            return [self._missing(np.setdiff1d(known, batch[0]))]
        if twice:
            return [self._twice([kept[known.size :] for kept in twice])]
        return self._damaged(arrived)

    @property
    def _arrived(self) -> np.ndarray:
        found: np.ndarray = self.rows.column(ARRIVED).cast(pa.float64()).to_numpy()
        return found  # NULL is NaN

    def _agreeing(self, several: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Which multisets of rows give all that was served, and all that was backfilled."""
        group = self.joined.group
        tested = [Hypothesis(one) for one in several]
        found = features_over(self.inputs, group, self.rows, self.one.example.at, tested)
        agree = np.ones((2, len(several)), np.bool_)
        for number in self.served:
            function = group.features[number].aggregation.function
            rule = Rule(function.of_nothing == 0, sketch_of(function))
            for side, values in enumerate((self.served, self.offline)):
                repeated = values[number].take(pa.array(np.zeros(len(several), np.int64)))
                outcomes = compare(repeated, found[number], rule).outcomes
                agree[side] &= np.isin(outcomes, _AGREE)
        return agree[0], agree[1]

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
