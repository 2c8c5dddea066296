"""A process that writes, ticks, maintains and reads a project beside others, for a test.

    python history_worker.py URI SEED

The project has a table and a view of it, which is to be equal to the table at every tick. Each
line of output is a row that is committed, and stays; the input ends it.
"""

from __future__ import annotations

import random
import select
import sys
from contextlib import suppress

import pyarrow as pa
from history_model import content, written

from windrow.errors import CommitConflictError, TimeRangeError
from windrow.storage.store import Store
from windrow.views.history import files as history_files
from windrow.views.history import maintain
from windrow.views.history.commits import Commit
from windrow.views.history.history import History


class Worker:
    def __init__(self, uri: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = History(Store.at(uri), roll_after=self.random.choice([1, 8]))
        self.seed, self.count = seed, 0
        catalogue = self.history.catalogue
        self.table, self.view = (catalogue[name]["id"] for name in ("table", "view"))

    def step(self) -> None:
        operations = [self.insert] * 4 + [self.flip, self.tick, self.tick, self.read, self.maintain]
        with suppress(CommitConflictError):  # another was first, and nothing is committed
            self.random.choice(operations)()

    def insert(self) -> None:
        """A row that nobody else writes, and that stays."""
        self.history.refresh()
        time = self.history.next_time()
        self.count += 1
        row = (self.seed * 1_000_000 + self.count, "kept", 1)
        parts = written(self.history, self.table, time, [row])
        self.history.commit(Commit("write", time, {self.table: parts}))
        print(row[0], flush=True)

    def flip(self) -> None:
        """Of row -1 there is always one copy: what is read is what is replaced."""
        self.history.refresh()
        based, time = self.history.version, self.history.next_time()
        table = self.history.collection(self.table)
        found = table.snapshot(keys=pa.table({"k": [-1]})).to_table().to_pylist()
        assert [row["_diff"] for row in found] == [1], found
        rows = [(-1, found[0]["v"], -1), (-1, f"{self.seed}-{time}", 1)]
        parts = written(self.history, self.table, time, rows)
        commit = Commit("write", time, {self.table: parts})
        try:
            self.history.commit(commit, expected=based, reads=[self.table])
        except CommitConflictError:
            self.history.discard(commit)
            raise

    def tick(self) -> None:
        """What changed in the table is appended to the view."""
        with self.history.claim_ticks(wait=0.2):
            based, lower, time = self.history.version, self.history.ticked, self.history.time
            if lower == time:
                return
            changes = self.history.collection(self.table).changes(lower + 1, time + 1).to_table()
            writer = self.history.collection(self.view).writer(time)
            parts = writer.write(changes.drop_columns(["_time"]).to_batches()).parts
            tick = Commit("tick", time, {self.view: parts}, ticked=time)
            self.history.commit(tick, expected=based)

    def read(self) -> None:
        self.history.refresh()
        with suppress(TimeRangeError), self.history.hold([self.table, self.view]) as held:
            time = self.history.ticked
            found = [content(held[id], time) for id in (self.table, self.view)]
            assert found[0] == found[1], (time, found)

    def maintain(self) -> None:
        match self.random.randrange(4):
            case 0:
                self.history.roll_forward()
            case 1:
                self.history.sweep(hours=1)
            case 2:
                self.history = History(self.history._store)
            case _:
                self.history.maintain(kept=0)


def main(uri: str, seed: int) -> None:
    history_files.CHECKPOINT_EVERY = 10
    history_files.KEPT_SECONDS = 1.0
    maintain.FANOUT = 3
    worker = Worker(uri, seed)
    while not select.select([sys.stdin], [], [], 0)[0]:
        worker.step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
