"""Data of the benchmark of views: facts and what they are joined with, and changes to both.

    facts   id, key, dim, value: BIGINT; amount: DOUBLE    ten rows a key, ten a dim
    dims    id: BIGINT, rate: DOUBLE, label: STRING         a tenth as many rows

Every row of facts can be computed from its id, so that a change retracts exactly what is there
without having to look.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PER_KEY = 10
FILE_ROWS = 1_000_000
FACTS = "id BIGINT, key BIGINT, dim BIGINT, value BIGINT, amount DOUBLE"
DIMS = "id BIGINT, rate DOUBLE, label STRING"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[[], Any]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def by_turns(works: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Seconds of each, as often as wanted, one after the other; the first of each warms up."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for seconds, work in zip(found, works, strict=True):
            seconds.append(work())
    say(f"by turns: {found}")
    return [seconds[1:] for seconds in found]


def ratio(ticks: Sequence[Sequence[float]]) -> float:
    """How many times as long the second takes, at the median."""
    once, again = (statistics.median(seconds) for seconds in ticks)
    return again / once


def mixed(values: np.ndarray, salt: int) -> np.ndarray:
    """Numbers that look random, the same for the same input (splitmix64)."""
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def facts(ids: np.ndarray, rows: int) -> pa.Table:
    keys = max(1, rows // PER_KEY)
    amount = (mixed(ids, 4) % np.uint64(100_000)).astype(np.float64) / 100
    return pa.table(
        {
            "id": ids,
            "key": (mixed(ids, 1) % np.uint64(keys)).astype(np.int64),
            "dim": (mixed(ids, 2) % np.uint64(keys)).astype(np.int64),
            "value": (mixed(ids, 3) % np.uint64(1000)).astype(np.int64),
            "amount": amount,
        }
    )


def dims(ids: np.ndarray, version: np.ndarray | int = 0) -> pa.Table:
    """A later version of a dim has another rate."""
    rate = 1 + ((mixed(ids, 5) + np.asarray(version).astype(np.uint64)) % np.uint64(8)) / 8
    labels = pa.array([f"label {n}" for n in range(100)])
    chosen = labels.take(pa.array((mixed(ids, 6) % np.uint64(100)).astype(np.int64)))
    return pa.table({"id": ids, "rate": rate.astype(np.float64), "label": chosen})


def write_facts(folder: Path, ids: np.ndarray, rows: int) -> None:
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, ids.size, FILE_ROWS)):
        made = facts(ids[first : first + FILE_ROWS], rows)
        pq.write_table(made, folder / f"{number:04d}.parquet")


def write_dims(folder: Path, versions: np.ndarray) -> None:
    folder.mkdir(parents=True)
    pq.write_table(dims(np.arange(versions.size), versions), folder / "0000.parquet")


class Changes:
    """Batches of changes, half of them deletes, that always retract what is there."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        self._rows = rows
        self._rng = np.random.default_rng(seed)
        # Each row goes at most once, in a random order; new ones get ids of their own.
        self._order = self._rng.permutation(rows)[: min(rows, 1_000_000)]
        self._gone, self._next = 0, rows
        self.versions = np.zeros(max(1, rows // PER_KEY), np.int64)  # of dims, by id

    def ids(self) -> np.ndarray:
        """The facts that are there after all batches so far."""
        there = np.ones(self._next, np.bool_)
        there[self._order[: self._gone]] = False
        return np.flatnonzero(there)

    def batch(self, count: int) -> dict[str, pa.Table]:
        """Changes to both tables, with `_diff`: of dims a hundredth, each once more in its pair."""
        of_dims = max(1, count // 200)
        each = count // 2 - of_dims
        assert self._gone + each <= len(self._order), "no row is left that could go"
        going = np.sort(self._order[self._gone : self._gone + each])
        coming = np.arange(self._next, self._next + each)
        self._gone, self._next = self._gone + each, self._next + each
        chosen = self._rng.choice(len(self.versions), min(of_dims, len(self.versions)), False)
        before = dims(chosen, self.versions[chosen])
        self.versions[chosen] += 1
        return {
            "facts": changes_of(facts(going, self._rows), facts(coming, self._rows)),
            "dims": changes_of(before, dims(chosen, self.versions[chosen])),
        }


def changes_of(gone: pa.Table, come: pa.Table) -> pa.Table:
    """Rows that go and rows that come, with `_diff`."""
    diffs = np.repeat(np.array([-1, 1], np.int64), [len(gone), len(come)])
    return pa.concat_tables([gone, come]).append_column("_diff", pa.array(diffs))
