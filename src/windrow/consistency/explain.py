"""Why a served value differs: reasons, each with the rows that show it.

What the log says comes first: another version, a clock that was off, a record that was damaged.
Then hypotheses about the rows are tested: which rows would have to be there or not, for the
definition to give what was served? Where one gives all values of the request's group, it is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.consistency.cases import Case, agreeing_multisets
from windrow.consistency.choosing import Chosen
from windrow.consistency.evidence import Evidence, evidence
from windrow.consistency.history import ServedHistory
from windrow.consistency.hypotheses import affordable
from windrow.consistency.logs import joined_groups
from windrow.consistency.report import Cause, Example, Reason
from windrow.consistency.texts import length, moment
from windrow.errors import WindrowError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.inputs.groups import GroupInputs
from windrow.online.log.columns import ASKED, ERROR, WRITER
from windrow.spark.session import Engine

TOLERATED = 1_000  # milliseconds by which clocks may differ
_TOGETHER = 2_000_000  # rows of hypotheses that are computed together


@dataclass
class Explainer:
    """Explains the examples of one run."""

    engine: Engine
    options: dict[str, str] | None
    definition: Join | GroupBy
    version: str | None  # as it is defined now
    resolve: Callable[[GroupBy], GroupBy]
    history: ServedHistory

    def explain(self, chosen: Sequence[Chosen]) -> list[Example]:
        groups = {one.group.name: one for one in joined_groups(self.definition)}
        tested: dict[str, dict[tuple[Any, ...], list[Reason]]] = {}
        for name, joined in groups.items():
            mine = [one for one in chosen if one.group in (name, None)]
            tested[name] = self._tested(joined, mine) if mine else {}
        found = []
        for one in chosen:
            wanted = [one.group] if one.group is not None else list(groups)
            reasons = self._told(one)
            for name in wanted:
                reasons += tested[name].get(one.request, [])
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

    def _tested(
        self, joined: JoinedGroup, mine: Sequence[Chosen]
    ) -> dict[tuple[Any, ...], list[Reason]]:
        """By request: what hypotheses about the rows of a group give."""
        found = self._rows(joined, mine)
        cases: dict[tuple[Any, ...], Case] = {}
        for one in mine:
            key = self._key(joined, one)
            if found is None or None in key or one.values.get(ERROR) is not None:
                continue
            if one.request not in cases:
                case = Case.of(one, joined, self.definition, found, key, self.history)
                if case is not None:
                    cases[one.request] = case
        reasons: dict[tuple[Any, ...], list[Reason]] = {}
        for some in _batches(cases):
            several = [(cases[request], cases[request].tested()) for request in some]
            agreeing = agreeing_multisets(several)
            for request, (case, tested), (agrees, offline) in zip(
                some, several, agreeing, strict=True
            ):
                reasons[request] = case.reasons(tested, agrees, offline)
        return reasons


def _batches(cases: Mapping[tuple[Any, ...], Case]) -> Iterator[list[tuple[Any, ...]]]:
    """Requests whose hypotheses are computed together: as many as fit into memory."""
    some: list[tuple[Any, ...]] = []
    rows = 0
    for request, case in cases.items():
        own = case.rows.num_rows * affordable(case.rows.num_rows)
        if some and rows + own > _TOGETHER:
            yield some
            some, rows = [], 0
        some.append(request)
        rows += own
    if some:
        yield some


def _unexplained(one: Chosen) -> Reason:
    return Reason(
        Cause.UNEXPLAINED,
        "neither the log nor the rows that are known now tell why",
    )
