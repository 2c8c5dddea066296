"""Lots of files: whatever becomes of files, and however it is followed, the rows are the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.sources.delta_log import DeltaCommit
from windrow.views.sources.lots import Lots


class Table:
    """A Delta table in memory: the rows of all files that ever were, and the commits."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[str]] = {}  # of files, and of change data with signs
        self.there: list[str] = []
        self.commits: list[DeltaCommit] = []

    def _new(self, rows: Counter[str]) -> str:
        name = f"f{len(self.rows)}"
        self.rows[name] = rows
        return name

    def commit(self, kind: str, draw: Any) -> None:
        removed = draw(st.lists(st.sampled_from(self.there), unique=True)) if self.there else []
        old = sum((self.rows[name] for name in removed), Counter())
        if kind == "append":
            removed, new = [], Counter(draw(st.lists(st.sampled_from("abc"), min_size=1)))
        elif kind == "optimize":
            new = old
        else:
            new = Counter(draw(st.lists(st.sampled_from("abc"))))
        changed = Counter(new)
        changed.subtract(old)
        changes = [self._new(changed)] if kind == "change" else []
        added = [] if not new else [self._new(new)]
        if len(new) > 1 and draw(st.booleans()):
            first = Counter({key: new[key] for key in list(new)[:1]})
            added = [self._new(first), self._new(new - first)]
        self.there = [name for name in self.there if name not in removed] + added
        rearranged = kind in ("change", "optimize")
        self.commits.append(
            DeltaCommit(len(self.commits), tuple(added), tuple(removed), tuple(changes), rearranged)
        )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rows_of_lots_are_rows_of_files(data: st.DataObject) -> None:
    table, stored = Table(), Counter[tuple[str, int]]()
    state: tuple[dict[str, Any], dict[str, Any], int] = ({}, {}, 1)
    kinds = st.sampled_from(["append", "overwrite", "change", "optimize"])
    for _ in range(data.draw(st.integers(1, 6))):
        taken = len(table.commits)
        for kind in data.draw(st.lists(kinds, max_size=3)):
            table.commit(kind, data.draw)
        lots = Lots(*state)
        followed = data.draw(st.booleans())
        if followed:
            for commit in table.commits[taken:]:
                lots.follow(commit)
            assert sorted(lots.files) == sorted(table.there)  # the log alone leads there
        lots.match(dict.fromkeys(table.there, ""))
        read = {read.name for read in lots.reads}
        assert len(read) == len(lots.reads)
        stored = Counter({key: n for key, n in stored.items() if key[1] not in lots.gone})
        for one in lots.reads:
            for row, n in table.rows[one.name].items():
                stored[row, one.number] += n
        state = lots.files, lots.numbers, lots.next
        found: Counter[str] = Counter()
        for (row, _), n in stored.items():
            found[row] += n
        wanted = sum((table.rows[name] for name in table.there), Counter())
        assert {row: n for row, n in found.items() if n} == dict(wanted)
        # Each lot for itself, so that it can be retracted as a whole.
        for number in {first for first, _ in lots.files.values()}:
            numbers = lots.numbers.get(str(number), [number])
            inside: Counter[str] = Counter()
            for (row, own), n in stored.items():
                inside[row] += n if own in numbers else 0
            files = [name for name, (first, _) in lots.files.items() if first == number]
            assert +inside == sum((table.rows[name] for name in files), Counter())
