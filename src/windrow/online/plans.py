"""What is known of the names that are served: joins, their groups, and how far each group is.

It is what the notes of a store say. It is kept from one request to the next: a request reads the
notes it depends on together with its records, and what they say is read anew if their bytes are
others than those that are known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from windrow.errors import NotServedError, RequestError, StaleError
from windrow.online.derived import Derived
from windrow.online.evaluate import Evaluator
from windrow.online.generations import GROUPS, note_name
from windrow.online.keys import KeyReader
from windrow.online.records import Found
from windrow.online.served_view import Servable, ServedView, served_of
from windrow.online.stores.store import RecordStore
from windrow.online.view_records import RowReader
from windrow.storage.names import digest

JOINS = "join/"


@dataclass(frozen=True)
class ServedGroupUse:
    """A group as a join uses it: the request's names of its keys, and those of its features."""

    group: str
    left_keys: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class ServedJoin:
    """A join as it is served: groups, and what is derived of their features. A note, as JSON."""

    name: str
    uses: tuple[ServedGroupUse, ...]
    derived: Derived
    version: str

    def written(self) -> bytes:
        uses = [[u.group, list(u.left_keys), list(u.names)] for u in self.uses]
        return json.dumps(
            {
                "name": self.name,
                "uses": uses,
                "derived": self.derived.to_json(),
                "version": self.version,
            }
        ).encode()

    @staticmethod
    def read(raw: bytes) -> ServedJoin:
        found = json.loads(raw)
        uses = tuple(ServedGroupUse(g, tuple(k), tuple(n)) for g, k, n in found["uses"])
        return ServedJoin(
            found["name"], uses, Derived.from_json(found["derived"]), found["version"]
        )


def version_of(join: ServedJoin, groups: Sequence[Servable]) -> str:
    """The version of all that makes up an answer: that of a join, and those of its groups."""
    digests = [f"{group.digest:015x}" for group in groups]
    return join.version if digests == [join.version] else digest(join.version, digests)


def join_note(name: str) -> str:
    return f"{JOINS}{name}"


@dataclass
class OpenGroup:
    """What is known of a group or view that is served; `raw` is the note that said so."""

    raw: bytes
    number: int
    served: Servable
    evaluator: Evaluator | RowReader
    sealed: int
    fresh_at: int
    alone: ServedJoin  # the group by itself: a join of one

    @property
    def what(self) -> str:
        return self.served.kind if isinstance(self.served, ServedView) else "group"

    @property
    def remedy(self) -> str:
        """The command that writes its records anew."""
        name = self.served.name
        if not isinstance(self.served, ServedView):
            return f"`windrow upload {name}`"
        if self.served.kind == "view":
            return f"REFRESH MATERIALIZED VIEW {name}"
        return "to UNSET its property 'online', and to SET it again,"

    def check_time(self, found: Found, at: int) -> None:
        """Refuse a time before that of which these records can tell."""
        sealed = self.sealed
        if at >= sealed:
            sealed = found.latest_sealed(sealed)
        if at < sealed:
            raise RequestError(
                f"{self.served.name}: features at {at} cannot be told online, only from {sealed} "
                "on; a backfill gives those of earlier times"
            )

    def is_stale(self, at: int) -> bool:
        """Whether what is known is too old at this time; a StaleError if that is refused."""
        limit = self.served.max_staleness
        if limit is None or at - self.fresh_at <= limit:
            return False
        if self.served.refuses_stale:
            raise StaleError(
                f"{self.served.name}: its rows were taken in up to {self.fresh_at}, which is "
                f"{(at - self.fresh_at) / 1000:.0f} s ago, more than max_staleness allows; look "
                "after the stream, or upload again"
            )
        return True


@dataclass(frozen=True)
class Plan:
    """How some features of a name are answered, as long as the notes are what they are.

    `notes` are the names of the notes it depends on, `raws` what they said. `inputs` are the
    features of all groups that are needed, `names` those of an answer, and `places` where these
    are among inputs and derived columns; None if they are all of them.
    """

    join: ServedJoin
    uses: tuple[ServedGroupUse, ...]
    groups: tuple[OpenGroup, ...]
    readers: tuple[tuple[KeyReader, int], ...]  # each with the number of a generation
    notes: tuple[str, ...]
    raws: list[bytes | None]
    inputs: tuple[str, ...]
    derives: bool
    names: tuple[str, ...]
    places: tuple[int, ...] | None
    version: str
    epoch: object

    def check_asked(self) -> None:
        """Refuse a request that names a time, where it can have no other than that of a tick."""
        for group in self.groups:
            served = group.served
            if isinstance(served, ServedView):
                raise RequestError(
                    f"{served.name}: a {served.kind} is served as of the last tick, and at no "
                    "other time; leave `at` out. SELECT ... FROM ... TIMESTAMP AS OF ... reads it "
                    "at earlier times"
                )

    @property
    def numbers(self) -> list[int]:
        """The generations whose records it reads."""
        return [number for _, number in self.readers]


class Plans:
    """The joins and groups of a store. Safe to share between threads."""

    _MOST = 1000  # plans that are kept: clients may ask for any features

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self.groups: dict[str, OpenGroup] = {}
        self._joins: dict[str, tuple[bytes, ServedJoin]] = {}
        self._made: dict[tuple[str, tuple[str, ...] | None], Plan] = {}
        self._epoch = object()  # another one after each change of groups or joins

    def names(self) -> list[str]:
        """The groups, joins and views that are served."""
        groups = [name.removeprefix(GROUPS) for name in self._records.notes(GROUPS)]
        served = [name for name in groups if self.group(name) is not None]
        return sorted([*served, *(n.removeprefix(JOINS) for n in self._records.notes(JOINS))])

    def knows(self, name: str) -> bool:
        """Whether `join` and `require` will answer without reading the store."""
        known = self._joins.get(name)
        if known is None:
            return name in self.groups
        return all(use.group in self.groups for use in known[1].uses)

    def join(self, name: str) -> ServedJoin:
        """The join of a name; a group by itself is a join of one."""
        known = self._joins.get(name)
        if known is None and name in self.groups:
            return self.groups[name].alone  # a join of this name would show when it is read
        if known is None:
            (raw,), _ = self._records.read([join_note(name)], [])
            if raw is None:
                return self.require(name).alone
            known = self._joins[name] = (raw, ServedJoin.read(raw))
            self._epoch = object()
        return known[1]

    def require(self, name: str) -> OpenGroup:
        """A group; a NotServedError if it is not there."""
        group = self.group(name)
        if group is None:
            served = [n.removeprefix(GROUPS) for n in self._records.notes(GROUPS)]
            served += [n.removeprefix(JOINS) for n in self._records.notes(JOINS)]
            there = f"there are {', '.join(sorted(served))}" if served else "nothing is"
            raise NotServedError(
                f"{name!r} is not served in {self._records.address}; {there}. "
                f"`windrow upload {name}` puts it online"
            )
        return group

    def group(self, name: str) -> OpenGroup | None:
        """A group, if it is served."""
        known = self.groups.get(name)
        if known is not None:
            return known
        (raw,), _ = self._records.read([note_name(name)], [])
        return self._opened(name, raw)

    def _opened(self, name: str, raw: bytes | None) -> OpenGroup | None:
        """What a note says; what is the same as before is not read again."""
        known = self.groups.get(name)
        found = None if raw is None else json.loads(raw)["current"]
        if raw is None or found is None:
            self.groups.pop(name, None)
            self._epoch = object()
            return None
        if known is not None and known.number == found["number"]:
            served, evaluator, alone = known.served, known.evaluator, known.alone
        else:
            served = served_of(found["served"])
            evaluator = _evaluator(served)
            use = ServedGroupUse(name, served.keys, served.names)
            alone = ServedJoin(name, (use,), Derived(), f"{served.digest:015x}")
        fresh_at = min(found["fresh"])
        made = OpenGroup(raw, found["number"], served, evaluator, found["sealed"], fresh_at, alone)
        self.groups[name] = made
        self._epoch = object()
        return made

    def version(self, join: ServedJoin) -> str:
        """The version of what a join answers now."""
        return version_of(join, [self.require(use.group).served for use in join.uses])

    def plan(self, name: str, features: tuple[str, ...] | None) -> Plan:
        """How features of a name are answered: all of them, or some; may read the store."""
        made = self._made.get((name, features))
        if made is not None and made.epoch is self._epoch:
            return made
        epoch = self._epoch  # before all else: what changes meanwhile makes it another one
        join = self.join(name)
        known = self._joins.get(name)
        uses = self._uses(join, features)
        groups = tuple([self.require(use.group) for use in uses])
        inputs = tuple(name for use in uses for name in use.names)
        derived = tuple(name for name, _ in join.derived.types)
        derives = bool(derived) and (features is None or not set(features).isdisjoint(derived))
        names = (*inputs, *derived) if derives else inputs
        made = Plan(
            join,
            uses,
            groups,
            tuple((_reader(u, g), g.number) for u, g in zip(uses, groups, strict=True)),
            (join_note(name), *(note_name(use.group) for use in uses)),
            [None if known is None else known[0], *(group.raw for group in groups)],
            inputs,
            derives,
            names if features is None else features,
            None if features is None else tuple(names.index(one) for one in features),
            self.version(join),
            epoch,
        )
        if len(self._made) >= self._MOST:
            self._made.clear()
        self._made[name, features] = made
        return made

    def confirmed(
        self, plan: Plan, features: tuple[str, ...] | None, raws: list[bytes | None]
    ) -> Plan | None:
        """The plan, if its notes are what they were when records were read, or only further on.

        None if they are about other generations: then the records were not those to be read.
        """
        if raws == plan.raws:
            return plan
        name = plan.join.name
        known = self._joins.get(name)
        if raws[0] != (None if known is None else known[0]):
            self._joins.pop(name, None)
            self._epoch = object()
            return None
        for use, group, raw in zip(plan.uses, plan.groups, raws[1:], strict=True):
            if raw != group.raw:
                opened = self._opened(use.group, raw)
                if opened is None or opened.number != group.number:
                    return None
        if not self.knows(name):
            return None
        again = self.plan(name, features)
        return again if again.numbers == plan.numbers else None

    def _uses(self, join: ServedJoin, features: Sequence[str] | None) -> tuple[ServedGroupUse, ...]:
        """The groups that are needed for some features."""
        if features is None:
            return join.uses
        known = [name for use in join.uses for name in use.names]
        derived = [name for name, _ in join.derived.types]
        for name in features:
            if name not in known and name not in derived:
                close = get_close_matches(name, [*known, *derived], n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {len(known)} others"
                raise RequestError(f"{join.name}: there is no feature {name!r}; {hint}")
        if set(features) & set(derived):
            return join.uses
        return tuple(use for use in join.uses if set(use.names) & set(features))


def _evaluator(served: Servable) -> Evaluator | RowReader:
    return RowReader(served) if isinstance(served, ServedView) else Evaluator(served)


def _reader(use: ServedGroupUse, group: OpenGroup) -> KeyReader:
    """What makes keys of records from those of requests."""
    types = group.served.key_types
    return KeyReader(use.group, list(zip(use.left_keys, types, strict=True)))
