"""Requests that are answered together: one read of the store, and one evaluation, for all of them.

Nothing is read here. An `Asking` says which notes and records it needs, is given them as they were
at one moment, and says whether it needs more: if a generation was replaced meanwhile. So the same
code answers those who wait for a store and those who do not.

Requests for the same features of a name are one *part*. What is wrong with one request never fails
another: if a part cannot be answered as a whole, each of its requests is answered by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from windrow.errors import DataError, NotServedError
from windrow.online.evaluate import Column
from windrow.online.fetched import Fetched, Outcome, Request, Status
from windrow.online.plans import OpenGroup, Plan, Plans
from windrow.online.records import Found

_ATTEMPTS = 10  # at reading one generation while another takes its place

_OF_EMPTY = (Status.PRESENT, Status.EMPTY).__getitem__

Row = Mapping[str, Any]


class Asking:
    """Some requests; `now` is the time of those that name none."""

    def __init__(self, plans: Plans, requests: Sequence[Request], now: int) -> None:
        self._plans, self._attempts = plans, 0
        self._outcomes: list[Outcome | None] = [None] * len(requests)
        parts: dict[tuple[str, tuple[str, ...] | None], _Part] = {}
        for number, request in enumerate(requests):
            features = None if request.features is None else tuple(request.features)
            key = (request.name, features)
            part = parts.get(key)
            if part is None:
                part = parts[key] = _Part(request.name, features)
            part.members.append(_Member(number, request.keys, request.at, now))
        self._left = list(parts.values())

    def wanted(self) -> tuple[list[str], list[bytes]] | None:
        """The notes and records to be read; None if every request is answered."""
        notes: list[str] = []
        keys: list[bytes] = []
        ready = []
        self._attempts += 1
        for part in self._left:
            try:
                if self._attempts > _ATTEMPTS:
                    raise NotServedError(
                        f"{part.name!r} was replaced again and again; try once more"
                    )
                part.prepare(self._plans, self._outcomes, notes, keys)
            except Exception as error:
                for member in part.members:
                    self._outcomes[member.number] = error
                continue
            if part.members:
                ready.append(part)
        self._left = ready
        return (notes, keys) if ready else None

    def take(self, notes: Sequence[bytes | None], found: Sequence[bytes | None]) -> bool:
        """Answer what can be answered by what was `wanted`; whether that is all."""
        left = []
        for part in self._left:
            if part.is_current(self._plans, notes):
                part.answer(found, self._outcomes)
            else:
                left.append(part)
        self._left = left
        return not left

    @property
    def outcomes(self) -> list[Outcome]:
        """For each request its answer, or its error; once all are answered."""
        return cast("list[Outcome]", self._outcomes)


class _Member:
    """A request within a part: its place among all, its keys, and its time."""

    __slots__ = ("asked", "first", "number", "rows", "time")

    def __init__(self, number: int, rows: Sequence[Row], at: int | None, now: int) -> None:
        self.number, self.rows = number, rows
        self.time, self.asked = (now, False) if at is None else (at, True)
        self.first = 0  # of its rows among those of the part


class _Part:
    """Requests for the same features of one name."""

    def __init__(self, name: str, features: tuple[str, ...] | None) -> None:
        self.name, self.features = name, features
        self.members: list[_Member] = []

    def prepare(
        self,
        plans: Plans,
        outcomes: list[Outcome | None],
        notes: list[str],
        keys: list[bytes],
    ) -> None:
        """Append what is needed; a request whose keys are wrong is out of it."""
        plan = self._plan = plans.plan(self.name, self.features)
        self._wanted: list[list[bytes | None]] = [[] for _ in plan.readers]
        good = []
        size = 0
        for member in self.members:
            rows = member.rows
            try:
                if member.asked:
                    plan.check_asked()
                found = [reader.read_all(number, rows) for reader, number in plan.readers]
            except Exception as error:
                outcomes[member.number] = error
                continue
            for all_of_use, own in zip(self._wanted, found, strict=True):
                all_of_use += own
            member.first = size
            size += len(rows)
            good.append(member)
        self.members = good
        self._first_note, self._first_key = len(notes), len(keys)
        if good:
            notes += plan.notes
            for all_of_use in self._wanted:
                keys += [key for key in all_of_use if key is not None]

    def is_current(self, plans: Plans, notes: Sequence[bytes | None]) -> bool:
        """Whether what was read is of the generations that it was prepared for."""
        plan = self._plan
        own = notes[self._first_note : self._first_note + len(plan.notes)]
        confirmed = plans.confirmed(plan, self.features, list(own))
        if confirmed is not None:
            self._plan = confirmed
        return confirmed is not None

    def answer(self, found: Sequence[bytes | None], outcomes: list[Outcome | None]) -> None:
        """Answer its requests: together or, if something is wrong, each by itself."""
        members, records = self.members, self._records(found)
        try:
            answers = _answers(self._plan, members, records)
        except Exception as error:
            if len(members) == 1:
                outcomes[members[0].number] = error
                return
        else:
            for member, answer in zip(members, answers, strict=True):
                outcomes[member.number] = answer
            return
        for member in members:
            own = slice(member.first, member.first + len(member.rows))
            member.first = 0
            try:
                (answer,) = _answers(self._plan, [member], [one[own] for one in records])
                outcomes[member.number] = answer
            except Exception as error:
                outcomes[member.number] = error

    def _records(self, found: Sequence[bytes | None]) -> list[Sequence[bytes | None]]:
        """The records of each group, one for each row; None also where a key is NULL."""
        first = self._first_key
        records: list[Sequence[bytes | None]] = []
        for wanted in self._wanted:
            last = first + len(wanted) - wanted.count(None)
            own = found[first:last]
            if last - first < len(wanted):
                there = iter(own)
                own = [None if key is None else next(there) for key in wanted]
            records.append(own)
            first = last
        return records


def _answers(
    plan: Plan, members: Sequence[_Member], records: Sequence[Sequence[bytes | None]]
) -> list[Fetched]:
    """What requests are answered, of the records of their keys; by the same plan."""
    times = [member.time for member in members]
    of_keys = [member.time for member in members for _ in member.rows]
    columns: list[Column] = []
    fresh_at: list[int] = []
    late: list[list[bool]] = []  # for each column, and each member
    for use, group, own in zip(plan.uses, plan.groups, records, strict=True):
        found = _found(group, own, members)
        group.check_time(found, min(times))
        stale = [group.is_stale(time) for time in times]
        try:
            results = group.evaluator.features(found, of_keys)
        except DataError as error:
            raise DataError(f"{use.group}: {error}") from error
        columns += results
        fresh_at += [group.fresh_at] * len(results)
        late += [stale] * len(results)
    values = [column.values for column in columns]
    statuses = [
        _statuses(column, stale, members) for column, stale in zip(columns, late, strict=True)
    ]
    if plan.derives:
        inputs = dict(zip(plan.inputs, values, strict=True))
        rows = [row for member in members for row in member.rows]
        worst = [any(stale) for stale in zip(*late, strict=True)] or [False] * len(members)
        fresh_at.append(min(fresh_at, default=min(times)))
        for _, made in plan.join.derived.evaluate(inputs, rows, plan.join.name):
            empty = [value is None for value in made] if None in made else None
            values.append(made)
            statuses.append(_statuses(Column(made, empty), worst, members))
        fresh_at += [fresh_at[-1]] * (len(values) - len(fresh_at))
    if plan.places is not None:
        values = [values[place] for place in plan.places]
        statuses = [statuses[place] for place in plan.places]
        fresh_at = [fresh_at[place] for place in plan.places]
    return _split(plan, members, values, statuses, fresh_at)


def _split(
    plan: Plan,
    members: Sequence[_Member],
    values: Sequence[list[Any]],
    statuses: Sequence[list[Status]],
    fresh_at: list[int],
) -> list[Fetched]:
    """The answer to each request: its rows of all columns."""
    name, names, version = plan.join.name, plan.names, plan.version
    found = []
    for member in members:
        first, count = member.first, len(member.rows)
        if count == 1:
            own = [[column[first]] for column in values]
            said = [[column[first]] for column in statuses]
        else:
            own = [column[first : first + count] for column in values]
            said = [column[first : first + count] for column in statuses]
        fresh = fresh_at.copy()
        found.append(Fetched(name, member.time, names, member.rows, own, said, fresh, version))
    return found


def _statuses(column: Column, stale: Sequence[bool], members: Sequence[_Member]) -> list[Status]:
    """The status of each value; `stale` says of which members all are."""
    if column.empty is None:
        found = [Status.PRESENT] * len(column.values)
    else:
        found = list(map(_OF_EMPTY, column.empty))
    if True in stale:
        for member, all_of_it in zip(members, stale, strict=True):
            if all_of_it:
                count = len(member.rows)
                found[member.first : member.first + count] = [Status.STALE] * count
    return found


def _found(group: OpenGroup, records: Sequence[bytes | None], members: Sequence[_Member]) -> Found:
    try:
        return Found.of(group.served, records)
    except DataError:
        rows = [row for member in members for row in member.rows]
        for row, record in zip(rows, records, strict=True):
            try:
                Found.of(group.served, [record])
            except DataError as error:
                what = f"{group.what} {group.served.name}, key {dict(row)}"
                raise DataError(f"{what}: {error}; {group.remedy} writes it anew") from error
        raise
