"""Trips of taxis, made up, with the distribution that matters for aggregates by passengers.

    tripdata   id: BIGINT, passenger_count, fare_amount, trip_distance: INT, tip: DOUBLE,
               pickup: TIMESTAMP

However many trips there are, 3,105 pairs of passengers and fare occur, and 31,833 triples with the
distance; of one passenger, 11,072 pairs of fare and distance. Seven of ten trips have one
passenger. Pick-ups are at millions of different times. The largest fares are rare: they occur
among the first trips only, once for each distance.

Every trip can be computed from its id, so that a change retracts exactly what is there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from views_data import changes_of, mixed

TRIPS = (
    "id BIGINT, passenger_count INT, fare_amount INT, trip_distance INT, tip DOUBLE, "
    "pickup TIMESTAMP"
)
PAIRS, TRIPLES = 3_105, 31_833
# Passengers: share of the trips in thousandths, fares, pairs of fare and distance.
PASSENGERS = {
    1: (710, 1_060, 11_072),
    2: (140, 640, 6_500),
    5: (50, 360, 3_650),
    3: (40, 330, 3_350),
    6: (30, 270, 2_740),
    4: (20, 255, 2_590),
    0: (7, 100, 1_016),
    7: (1, 30, 305),
    8: (1, 30, 305),
    9: (1, 30, 305),
}
RARE = 50  # fares of each number of passengers, the largest, that only the first trips have
FILE_ROWS = 1_000_000
START = np.datetime64("2024-01-01", "us").astype(np.int64)
YEAR = 365 * 24 * 3600 * 1_000_000


def _triples() -> tuple[np.ndarray, np.ndarray]:
    """All triples, and where the triples of common fares of each number of passengers are."""
    found, ranges = [], []
    first = 0
    for passengers, (share, fares, pairs) in PASSENGERS.items():
        at = np.arange(pairs)
        fare = at * fares // pairs
        starts = np.searchsorted(fare, np.arange(fares))
        distance = at - starts[fare]
        found.append(np.stack([np.full(pairs, passengers), fare + 3, distance + fare // 3], axis=1))
        common = int(starts[max(1, fares - RARE)])
        ranges.append([share, first, common])
        first += pairs
    return np.concatenate(found).astype(np.int32), np.array(ranges)


_ALL, _RANGES = _triples()
assert len(_ALL) == TRIPLES
assert len(np.unique(_ALL[:, :2], axis=0)) == PAIRS


def trips(ids: np.ndarray) -> pa.Table:
    ends = np.cumsum(_RANGES[:, 0])
    kind = np.searchsorted(ends, (mixed(ids, 11) % np.uint64(1000)).astype(np.int64), "right")
    _, first, common = _RANGES[kind].T
    # Cheap trips are more common than dear ones.
    draw = (mixed(ids, 12) >> np.uint64(11)).astype(np.float64) / 2**53
    chosen = first + (draw**3 * common).astype(np.int64)
    chosen = np.where(ids < TRIPLES, ids, chosen)
    passengers, fare, distance = _ALL[chosen].T
    tip = (mixed(ids, 13) % np.uint64(2_000)).astype(np.float64) / 100
    pickup = START + (mixed(ids, 14) % np.uint64(YEAR)).astype(np.int64)
    return pa.table(
        {
            "id": ids,
            "passenger_count": passengers,
            "fare_amount": fare,
            "trip_distance": distance,
            "tip": tip,
            "pickup": pa.array(pickup, pa.timestamp("us", "UTC")),
        }
    )


def write_trips(folder: Path, ids: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, ids.size, FILE_ROWS)):
        made = trips(ids[first : first + FILE_ROWS])
        pq.write_table(made, folder / f"{number:04d}.parquet")


class TripChanges:
    """Batches of trips that come and go, half each; among those that go are current extremes.

    Of each number of passengers, every batch retracts some of the dearest trips, and of the
    earliest.
    """

    def __init__(self, rows: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        dearest, earliest = _dearest(rows), _earliest(rows)
        both = min(len(dearest), len(earliest))
        extremes = np.stack([dearest[:both], earliest[:both]], axis=1).reshape(-1)
        _, first = np.unique(extremes, return_index=True)
        self._extremes = _Taken(extremes[np.sort(first)])
        chosen = rng.permutation(rows)[: min(rows, 1_000_000)]
        self._others = _Taken(chosen[~np.isin(chosen, extremes)])
        self._next = rows
        self._gone: list[np.ndarray] = []

    def ids(self) -> np.ndarray:
        """The trips that are there after all batches so far."""
        there = np.ones(self._next, np.bool_)
        for gone in self._gone:
            there[gone] = False
        return np.flatnonzero(there)

    def batch(self, count: int) -> pa.Table:
        extremes = self._extremes.next(count // 100)
        going = np.concatenate([extremes, self._others.next(count // 2 - len(extremes))])
        coming = np.arange(self._next, self._next + count // 2)
        self._next += count // 2
        self._gone.append(going)
        assert len(going) == len(coming), "no trip is left that could go"
        return changes_of(trips(going), trips(coming))


class _Taken:
    """Ids, from the first on, each once."""

    def __init__(self, ids: np.ndarray) -> None:
        self._ids, self._at = ids, 0

    def next(self, count: int) -> np.ndarray:
        self._at += count
        return self._ids[self._at - count : self._at]


def _dearest(rows: int) -> np.ndarray:
    """Trips with the largest fares, of all numbers of passengers in turn."""
    ends = np.append(_RANGES[1:, 1], TRIPLES)
    found = np.stack([np.arange(end - 1, end - 51, -1) for end in ends], axis=1).reshape(-1)
    return found[found < rows]


def _earliest(rows: int) -> np.ndarray:
    """Trips with the earliest pick-ups, of all numbers of passengers in turn."""
    best: dict[int, list[pa.Table]] = {passengers: [] for passengers in PASSENGERS}
    for first in range(0, rows, FILE_ROWS):
        made = trips(np.arange(first, min(first + FILE_ROWS, rows))).sort_by("pickup")
        for passengers, found in best.items():
            found.append(made.filter(pc.equal(made["passenger_count"], passengers))[:50])
    columns = [
        pa.concat_tables(found).sort_by("pickup")["id"][:50].to_numpy() for found in best.values()
    ]
    size = min(map(len, columns))
    return np.stack([one[:size] for one in columns], axis=1).reshape(-1)
