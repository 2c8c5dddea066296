"""Fetching: the features of keys at a time, of groups and of joins, from a store of records.

A fetch reads the notes of its groups and the records of its keys at one moment. What a note says is
kept from one request to the next, and read again when its bytes are others; so the work of a
request is to encode its keys, to read the store, and to evaluate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from windrow.errors import DataError, NotServedError, RequestError, StaleError
from windrow.online.derived import Derived
from windrow.online.evaluate import Column, Evaluator
from windrow.online.fetched import Description, Fetched, Status
from windrow.online.generations import GROUPS, Generation, note_name
from windrow.online.keys import KeyReader
from windrow.online.records import Found
from windrow.online.served import ServedGroup
from windrow.online.stores.store import RecordStore
from windrow.storage.names import digest
from windrow.time import now_millis

JOINS = "join/"
_ATTEMPTS = 10  # at reading one generation while another takes its place


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


def version_of(join: ServedJoin, groups: Sequence[ServedGroup]) -> str:
    """The version of all that makes up an answer: that of a join, and those of its groups."""
    digests = [f"{group.digest:015x}" for group in groups]
    return join.version if digests == [join.version] else digest(join.version, digests)


def join_note(name: str) -> str:
    return f"{JOINS}{name}"


@dataclass
class _OpenGroup:
    """What is known of a group that is served; `raw` is the note that said so."""

    raw: bytes
    number: int
    served: ServedGroup
    evaluator: Evaluator
    sealed: int
    fresh_at: int
    alone: ServedJoin  # the group by itself: a join of one


class Fetcher:
    """Answers requests from a store. Safe to share between threads."""

    def __init__(self, records: RecordStore, now: Callable[[], int] = now_millis) -> None:
        self._records, self._now = records, now
        self._groups: dict[str, _OpenGroup] = {}
        self._joins: dict[str, tuple[bytes, ServedJoin]] = {}
        self._readers: dict[tuple[str, tuple[str, ...], int], KeyReader] = {}
        self._versions: dict[tuple[str, tuple[int, ...]], str] = {}

    @property
    def waits(self) -> bool:
        """Whether a fetch may wait for another machine."""
        return not self._records.is_local

    def names(self) -> list[str]:
        """The groups and joins that are served."""
        groups = [name.removeprefix(GROUPS) for name in self._records.notes(GROUPS)]
        served = [name for name in groups if self._group(name) is not None]
        return sorted([*served, *(n.removeprefix(JOINS) for n in self._records.notes(JOINS))])

    def describe(self, name: str) -> Description:
        """The keys and features of a group or join."""
        join = self._plan(name)
        keys: dict[str, pa.DataType] = {}
        features: list[tuple[str, pa.DataType]] = []
        groups: dict[str, str] = {}
        staleness = []
        for use in join.uses:
            group = self._require(use.group)
            layout = group.served.layout
            keys |= dict(zip(use.left_keys, layout.key_types, strict=True))
            features += zip(use.names, group.served.types, strict=True)
            groups |= dict.fromkeys(use.names, use.group)
            if group.served.max_staleness is not None:
                staleness.append(group.served.max_staleness)
        return Description(
            name,
            tuple(keys.items()),
            (*features, *join.derived.types),
            tuple(one for one in join.derived.inputs if one[0] not in keys),
            groups,
            min(staleness, default=None),
            self._version(join),
        )

    def fetch(
        self,
        name: str,
        keys: Sequence[Mapping[str, Any]],
        *,
        at: int | None = None,
        features: Sequence[str] | None = None,
    ) -> Fetched:
        """The features of keys at a time, by default now; of all features, or of some by name."""
        time = self._now() if at is None else at
        join, read = self._read(name, keys, features)
        names: list[str] = []
        columns: list[list[Any]] = []
        statuses: list[list[Status]] = []
        fresh_at: list[int] = []
        for use, group, found in read:
            self._check_time(group, found, time)
            stale = self._is_stale(group, time)
            try:
                results = group.evaluator.features(found, time)
            except DataError as error:
                raise DataError(f"{use.group}: {error}") from error
            names += use.names
            for result in results:
                columns.append(result.values)
                statuses.append(_statuses(result, stale))
            fresh_at += [group.fresh_at] * len(results)
        if join.derived:
            inputs = dict(zip(names, columns, strict=True))
            for derived, values in join.derived.evaluate(inputs, keys, name):
                names.append(derived)
                columns.append(values)
                worst = Status.STALE if any(Status.STALE in s for s in statuses) else Status.PRESENT
                statuses.append([Status.EMPTY if v is None else worst for v in values])
                fresh_at.append(min(fresh_at, default=time))
        if features is not None:
            places = [names.index(one) for one in features]
            names = [names[p] for p in places]
            columns = [columns[p] for p in places]
            statuses = [statuses[p] for p in places]
            fresh_at = [fresh_at[p] for p in places]
        version = self._version(join)
        return Fetched(name, time, tuple(names), keys, columns, statuses, fresh_at, version)

    def _version(self, join: ServedJoin) -> str:
        groups = [self._require(use.group) for use in join.uses]
        key = (join.version, tuple([group.number for group in groups]))
        version = self._versions.get(key)
        if version is None:
            version = version_of(join, [group.served for group in groups])
            self._versions[key] = version
        return version

    def _wanted(
        self, join: ServedJoin, features: Sequence[str] | None
    ) -> tuple[ServedGroupUse, ...]:
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

    def _plan(self, name: str) -> ServedJoin:
        """The join of a name; a group by itself is a join of one."""
        known = self._joins.get(name)
        if known is None and name in self._groups:
            return self._groups[name].alone  # a join of this name would show when it is read
        if known is None:
            (raw,), _ = self._records.read([join_note(name)], [])
            if raw is None:
                return self._require(name).alone
            known = self._joins[name] = (raw, ServedJoin.read(raw))
        return known[1]

    def _require(self, name: str) -> _OpenGroup:
        group = self._group(name)
        if group is None:
            served = [n.removeprefix(GROUPS) for n in self._records.notes(GROUPS)]
            served += [n.removeprefix(JOINS) for n in self._records.notes(JOINS)]
            there = f"there are {', '.join(sorted(served))}" if served else "nothing is"
            raise NotServedError(
                f"{name!r} is not served in {self._records.address}; {there}. "
                f"`windrow upload {name}` puts it online"
            )
        return group

    def _group(self, name: str) -> _OpenGroup | None:
        known = self._groups.get(name)
        if known is not None:
            return known
        (raw,), _ = self._records.read([note_name(name)], [])
        return self._opened(name, raw)

    def _opened(self, name: str, raw: bytes | None) -> _OpenGroup | None:
        """What a note says; what is the same as before is not read again."""
        known = self._groups.get(name)
        found = None if raw is None else json.loads(raw)["current"]
        if raw is None or found is None:
            self._groups.pop(name, None)
            return None
        if known is not None and known.number == found["number"]:
            served, evaluator, alone = known.served, known.evaluator, known.alone
        else:
            served = Generation.from_json(found).served
            evaluator = Evaluator(served)
            names = tuple(feature.name for feature in served.features)
            use = ServedGroupUse(name, tuple(served.group.keys), names)
            alone = ServedJoin(name, (use,), Derived(), f"{served.digest:015x}")
        fresh_at = min(found["fresh"])
        made = _OpenGroup(raw, found["number"], served, evaluator, found["sealed"], fresh_at, alone)
        self._groups[name] = made
        return made

    def _read(
        self, name: str, rows: Sequence[Mapping[str, Any]], features: Sequence[str] | None
    ) -> tuple[ServedJoin, list[tuple[ServedGroupUse, _OpenGroup, Found]]]:
        """What is served under a name, and the records of all keys, as they were at one moment."""
        for _ in range(_ATTEMPTS):
            join = self._plan(name)
            uses = self._wanted(join, features)
            groups = [self._require(use.group) for use in uses]
            wanted: list[bytes | None] = []
            for use, group in zip(uses, groups, strict=True):
                reader = self._reader(use, group)
                wanted += [reader.read(group.number, row) for row in rows]
            notes = [join_note(name), *(note_name(use.group) for use in uses)]
            raws, found = self._records.read(notes, [key for key in wanted if key is not None])
            if self._is_current(name, raws, uses, groups):
                break
        else:
            raise NotServedError(f"{name!r} was replaced again and again; try once more")
        there = iter(found)
        records = [None if key is None else next(there) for key in wanted]
        size = len(rows)
        read = []
        for number, use in enumerate(uses):
            group = self._groups[use.group]  # its records are the same, if brought further
            own = records[number * size : (number + 1) * size]
            read.append((use, group, self._found(group, own, rows)))
        return join, read

    def _is_current(
        self,
        name: str,
        raws: Sequence[bytes | None],
        uses: Sequence[ServedGroupUse],
        groups: Sequence[_OpenGroup],
    ) -> bool:
        """Whether the notes that were read are still about the generations that are known."""
        known = self._joins.get(name)
        if raws[0] != (None if known is None else known[0]):
            self._joins.pop(name, None)
            return False
        same = True
        for use, group, raw in zip(uses, groups, raws[1:], strict=True):
            if raw != group.raw:
                opened = self._opened(use.group, raw)
                same &= opened is not None and opened.number == group.number
        return same

    def _found(
        self,
        group: _OpenGroup,
        records: Sequence[bytes | None],
        rows: Sequence[Mapping[str, Any]],
    ) -> Found:
        try:
            return Found.of(group.served, records)
        except DataError:
            for row, record in zip(rows, records, strict=True):
                try:
                    Found.of(group.served, [record])
                except DataError as error:
                    raise DataError(
                        f"group {group.served.name}, key {dict(row)}: {error}; "
                        f"`windrow upload {group.served.name}` writes it anew"
                    ) from error
            raise

    def _reader(self, use: ServedGroupUse, group: _OpenGroup) -> KeyReader:
        key = (use.group, use.left_keys, group.number)
        reader = self._readers.get(key)
        if reader is None:
            types = group.served.layout.key_types
            reader = KeyReader(use.group, list(zip(use.left_keys, types, strict=True)))
            self._readers[key] = reader
        return reader

    def _check_time(self, group: _OpenGroup, found: Found, at: int) -> None:
        sealed = group.sealed
        if at >= sealed:
            sealed = found.latest_sealed(sealed)
        if at < sealed:
            raise RequestError(
                f"{group.served.name}: features at {at} cannot be told online, only from {sealed} "
                "on; a backfill gives those of earlier times"
            )

    def _is_stale(self, group: _OpenGroup, at: int) -> bool:
        limit = group.served.max_staleness
        if limit is None or at - group.fresh_at <= limit:
            return False
        if group.served.refuses_stale:
            raise StaleError(
                f"{group.served.name}: its rows were taken in up to {group.fresh_at}, which is "
                f"{(at - group.fresh_at) / 1000:.0f} s ago, more than max_staleness allows; look "
                "after the stream, or upload again"
            )
        return True


def _statuses(result: Column, stale: bool) -> list[Status]:
    there = Status.STALE if stale else Status.PRESENT
    if True not in result.empty:
        return [there] * len(result.empty)
    empty = Status.STALE if stale else Status.EMPTY
    return [empty if one else there for one in result.empty]
