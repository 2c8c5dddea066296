"""The whole of Windrow in one run: a shop's month, then a morning of new events.

python examples/shop.py [FOLDER]

The month is backfilled, a view ranks the listings, and the features go online. Then events arrive
as files: a stream takes them in, the view ticks, and features are fetched over HTTP. A rating is
withdrawn. At the end, everything that was served is computed again from the stored rows, on Spark,
and compared.

Every number that is printed has been computed a second time, by plain loops over the raw rows.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import windrow as wr
from shop_loops import DAY, MINUTE, Row, naive_features, raw_rows, same
from windrow.commands.init import init
from windrow.commands.render import console, plain_table
from windrow.online.streams.batches import Done
from windrow.workspace import Workspace

DEMO = Path(__file__).resolve().parent.parent / "demo"
MIDNIGHT = int(datetime(2024, 5, 31, tzinfo=UTC).timestamp()) * 1000  # the month ends here
OPENING = MIDNIGHT + DAY * 9 // 24
SLOT = 30 * MINUTE
SLOTS, VIEWS, RATINGS, ASKED = 4, 250, 12, 25  # of a morning: each slot's events and requests

RANKING = """
    CREATE MATERIALIZED VIEW ranking AS
    SELECT listing_id, avg(stars) AS stars, count(*) AS ratings
    FROM ratings GROUP BY listing_id HAVING count(*) >= 20
    ORDER BY stars DESC, listing_id LIMIT 3
"""


class Different(Exception):  # noqa: N818
    """A number that loops over the raw rows do not give."""


def check(what: str, found: Any, expected: Any) -> None:
    if not same(found, expected):
        raise Different(f"{what}: {found!r}; by loops over the raw rows {expected!r}")


def clock(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%H:%M")


def iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


# --- what is known, for the loops --------------------------------------------------------------


@dataclass
class Raw:
    """All raw rows so far; a rating that was withdrawn has the time of that in `gone`."""

    views: list[Row]
    ratings: list[Row]
    checkouts: list[Row]

    def ratings_at(self, q: float) -> list[Row]:
        return [r for r in self.ratings if r.get("gone", math.inf) >= q]

    def features(self, request: Row, q: int) -> Row:
        return naive_features({**request, "ts": q}, self.views, self.ratings_at(q))

    def ranking(self) -> list[tuple[int, float, int]]:
        """The view's rows; a rating without a time is no row of the source."""
        stars: dict[int, list[int]] = {}
        for rating in self.ratings_at(math.inf):
            if rating["ts"] is not None:
                stars.setdefault(rating["listing_id"], []).append(rating["stars"])
        known = [(one, sum(s) / len(s), len(s)) for one, s in stars.items() if len(s) >= 20]
        return sorted(known, key=lambda row: (-row[1], row[0]))[:3]


# --- what happens --------------------------------------------------------------------------------


@dataclass
class Morning:
    """New events, the same ones every time, which arrive as files."""

    folder: Path
    raw: Raw
    rng: random.Random = field(default_factory=lambda: random.Random(9))

    def arrive(self, source: str, rows: list[Row], name: str) -> None:
        """A file is complete as soon as it has its name."""
        place = self.folder / "arriving" / source
        place.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({**row, "ts": iso(row["ts"])}, default=str) for row in rows]
        (place / f"_{name}").write_text("\n".join(lines))
        (place / f"_{name}").rename(place / name)

    def open_slot(self, number: int) -> int:
        """The events of half an hour arrive; when it ends."""
        start = OPENING + number * SLOT
        views, ratings = [], []
        for _ in range(VIEWS):
            like = self.rng.choice(self.raw.views[:20_000])
            views.append(
                {
                    **{k: like[k] for k in ("listing_id", "category", "price")},
                    "view_id": len(self.raw.views) + len(views) + 1,
                    "user_id": self.rng.randint(1, 40),
                    "ts": start + self.rng.randrange(SLOT),
                }
            )
        for _ in range(RATINGS):
            ratings.append(
                {
                    "rating_id": len(self.raw.ratings) + len(ratings) + 1,
                    "listing_id": self.rng.randint(1, 12),
                    "stars": self.rng.choice([1, 4, 5, 5]),
                    "ts": start + self.rng.randrange(SLOT),
                }
            )
        self.arrive("views", views, f"{number}.json")
        self.arrive("ratings", [_change(r, "insert", r["ts"]) for r in ratings], f"{number}.json")
        self.raw.views += views
        self.raw.ratings += ratings
        return start + SLOT

    def withdraw(self, rating: Row, at: int) -> None:
        self.arrive("ratings", [_change(rating, "delete", at)], "withdrawn.json")
        rating["gone"] = at


def _change(rating: Row, kind: str, at: int) -> Row:
    return {**rating, "_change_type": kind, "_commit_timestamp": iso(at)}


# --- the parts that run --------------------------------------------------------------------------


class Streaming:
    """The streams of the shop's sources, in a thread of this process, and what they took in."""

    def __init__(self, project: wr.Project, workspace: Workspace) -> None:
        self._done: dict[str, int] = {}
        self._changed = threading.Condition()
        self._stop = False
        groups = [group for group in workspace.groups.values() if group.online]
        self._streams = project.streams(
            *workspace.streamed(()), trigger=0.2, after=project.following(*groups)
        )
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._streams.run(lambda: self._stop, self._report)
        except BaseException as error:
            self._failed = error
        with self._changed:
            self._changed.notify_all()

    def _report(self, done: Done, lag: int | None) -> None:
        with self._changed:
            self._done[done.name] = self._done.get(done.name, 0) + done.rows
            self._changed.notify_all()

    def wait(self, **rows: int) -> None:
        """Until that many rows of each source have been taken in, records included."""

        def there() -> bool:
            return self._failed is not None or all(
                self._done.get(name, 0) >= count for name, count in rows.items()
            )

        with self._changed:
            if not self._changed.wait_for(there, timeout=600):
                raise TimeoutError(f"taken in: {self._done}, expected {rows}")
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        self._stop = True
        self._thread.join()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """`windrow serve`, a process of its own; the address. Every answer is logged."""
    command = [sys.executable, "-m", "windrow.cli", "serve", "--project", str(folder)]
    command += ["--port", "0", "--log-rate", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[2]
        finally:
            server.terminate()


class Client:
    """Asks the server, over one connection."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
        self.requests = 0
        self.seconds: list[float] = []

    def fetch(self, keys: list[Row], at: int) -> list[Row]:
        began = time.perf_counter()
        body = json.dumps({"keys": keys, "at": at})
        self._connection.request("POST", "/v1/features/training", body)
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        self.seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            raise Different(f"the server answered {answer.status}: {found}")
        self.requests += 1
        names, columns = found["features"].keys(), found["features"].values()
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def as_json(value: Any) -> Any:
    """A value as the server writes it."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(key): one for key, one in value.items()}
    return value


def check_fetched(client: Client, raw: Raw, requests: list[Row], at: int) -> list[Row]:
    found = client.fetch(requests, at)
    for request, row in zip(requests, found, strict=True):
        for name, value in raw.features(request, at).items():
            check(f"{name} of {request} at {clock(at)}", row[name], as_json(value))
    return found


def check_ranking(project: wr.Project, raw: Raw) -> list[tuple[int, float, int]]:
    rows = [tuple(row) for row in project.read("ranking").collect()]
    rows.sort(key=lambda row: (-row[1], row[0]))
    expected = raw.ranking()
    check("listings of the ranking", [r[::2] for r in rows], [r[::2] for r in expected])
    for row, other in zip(rows, expected, strict=True):
        check(f"stars of listing {row[0]}", row[1], other[1])
    return rows


def ranked(rows: list[tuple[int, float, int]]) -> str:
    return ", ".join(f"{listing} ({stars:.3f})" for listing, stars, _ in rows)


# --- the story -----------------------------------------------------------------------------------


class Story:
    def __init__(self, folder: Path, say: Callable[..., None] = print) -> None:
        self.folder, self.say = folder, say
        self.workspace = Workspace.load(folder)
        self.raw = Raw(*(raw_rows(folder / "data" / n) for n in ("views", "ratings", "checkouts")))
        self.project = self.workspace.project()
        self.requests = self.values = 0  # that were served, and found right

    def month(self) -> None:
        began = time.perf_counter()
        found = self.project.backfill(self.workspace.join("training"))
        rows = {row["checkout_id"]: row for row in found.toArrow().to_pylist()}
        if len(rows) != len(self.raw.checkouts):
            raise Different(f"{len(rows)} checkouts instead of {len(self.raw.checkouts)}")
        values = 0
        for checkout in self.raw.checkouts:
            number = checkout["checkout_id"]
            for name, value in self.raw.features(checkout, checkout["ts"]).items():
                check(f"checkout {number}, {name}", rows[number][name], value)
                values += 1
        seconds = time.perf_counter() - began
        self.say(
            f"1. The month, backfilled: {len(rows)} checkouts with {values:,} features, as they "
            f"were at their times, in {seconds:.0f} s"
        )

    def view(self) -> None:
        self.project.source("ratings", self.workspace.sources["ratings"])
        self.project.sql(RANKING)
        self.say("2. A view ranks the listings by stars, and will be kept true:")
        self.say(f"     first are {ranked(check_ranking(self.project, self.raw))}")

    def upload(self) -> None:
        uploaded = self.project.upload(self.workspace.join("training"), as_of=MIDNIGHT)
        keys = sum(one.keys for one in uploaded)
        self.say(f"3. Online: {keys} records in an embedded store, as of 31 May, 00:00")

    def morning(self) -> None:
        self.say("4. The morning of 31 May: events arrive as files, and are streamed in")
        table = plain_table("until", "views", "ratings", "tick", "fetched, p50", "ranking")
        happening = Morning(self.folder, self.raw)
        streaming = Streaming(self.project, self.workspace)
        try:
            with serving(self.folder) as address:
                client = Client(address)
                for number in range(SLOTS):
                    end = happening.open_slot(number)
                    streaming.wait(views=(number + 1) * VIEWS, ratings=(number + 1) * RATINGS)
                    table.add_row(clock(end), str(VIEWS), str(RATINGS), *self._look(client, end))
                console().print(table)
                self._withdrawal(client, happening, streaming, end)
        finally:
            streaming.close()

    def _look(self, client: Client, at: int) -> tuple[str, str, str]:
        """A tick, and features of those who look around now; all checked."""
        tick = self.project.tick()
        rows = check_ranking(self.project, self.raw)
        client.seconds.clear()
        for view in self.raw.views[-ASKED:]:
            self._ask(client, view["user_id"], view["listing_id"], at)
        middle = sorted(client.seconds)[len(client.seconds) // 2]
        return f"{tick.seconds:.1f} s", f"{middle * 1000:.1f} ms", ranked(rows)

    def _ask(self, client: Client, buyer: int, listing: int, at: int) -> Row:
        request = {"buyer_id": buyer, "listing_id": listing, "price": 20.0}
        (found,) = check_fetched(client, self.raw, [request], at)
        self.requests, self.values = self.requests + 1, self.values + len(found)
        return found

    def _withdrawal(
        self, client: Client, happening: Morning, streaming: Streaming, at: int
    ) -> None:
        before = check_ranking(self.project, self.raw)
        first = before[0][0]
        rating = max(
            (r for r in self.raw.ratings_at(at) if r["listing_id"] == first and r["ts"]),
            key=lambda r: (r["stars"], r["ts"]),
        )
        asked = self._ask(client, 1, first, at)
        happening.withdraw(rating, at + MINUTE)
        streaming.wait(ratings=SLOTS * RATINGS + 1)
        self.project.tick()
        after, later = check_ranking(self.project, self.raw), at + 2 * MINUTE
        fetched = self._ask(client, 1, first, later)
        name = "reputation_stars_count"
        gone = f"{rating['stars']} stars at {clock(at + MINUTE)}"
        self.say(f"5. A buyer of listing {first} withdraws {gone}")
        self.say(f"     the view:  {ranked(before)} became {ranked(after)}")
        self.say(f"     online:    {name} of listing {first} was {asked[name]}, is {fetched[name]}")
        self._ask(client, 1, first, at)  # as of before, it is what it was
        self.say(f"     and asked as of {clock(at)}, it still is {asked[name]}")

    def proof(self) -> None:
        """Compare all that was served with a backfill of the same requests."""
        began = time.perf_counter()
        report = self.project.consistency(self.workspace.join("training"))
        counted, coverage = report.counted, report.coverage
        check("requests in the log", coverage and coverage.logged, self.requests)
        check("values compared", counted.total, self.values)
        check("values that agree", counted.equal + counted.both_empty, self.values)
        check("the verdict", report.verdict, "consistent")
        self.say(
            f"6. Served against backfilled: {self.requests} requests, {counted.total:,} values, "
            f"{counted.equal:,} equal and {counted.both_empty} empty in both, none different: "
            f"{report.verdict}, in {time.perf_counter() - began:.0f} s"
        )
        self.report = self.folder / "state/consistency/training/reports" / f"{report.run}.html"

    def close(self) -> None:
        self.project.close()
        self.project.spark.stop()


def made_anew(folder: Path) -> bool:
    """Make the project in place of an earlier one; False if someone has worked on that since."""
    if folder.exists():
        theirs = {name: (folder / name) for name in ("features.py", "windrow.toml")}
        with tempfile.TemporaryDirectory() as other:
            ours = init(Path(other) / "shop")
            for name, file in theirs.items():
                if not file.exists() or file.read_text() != (ours / name).read_text():
                    return False
        shutil.rmtree(folder)
    init(folder)
    return True


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DEMO
    if not made_anew(folder):
        print(f"{folder} has been changed since it was made; move it away, or name another folder")
        return 1
    began = time.perf_counter()
    print(f"A shop with a month of views, ratings and checkouts is in {folder}\n")
    story = Story(folder)
    try:
        for step in (story.month, story.view, story.upload, story.morning, story.proof):
            step()
    except Different as different:
        print(f"DIFFERENT  {different}")
        return 1
    story.close()
    print(
        f"\nAll of it took {time.perf_counter() - began:.0f} s, and loops over the raw rows agree."
    )
    activate = os.path.relpath(Path(sys.prefix) / "bin" / "activate")
    print("\nLook at")
    print(f"  {os.path.relpath(story.report)}    the report")
    print(
        f"  . {activate}; cd {os.path.relpath(folder)}; windrow console    everything, in a browser"
    )
    print("What to try next, there:")
    print("  windrow sql -c 'SELECT * FROM ranking'    and EXPLAIN ranking")
    print("  windrow explain training                  every feature with its type and window")
    print("  windrow serve, and windrow stream         then put a file into arriving/views")
    print("  change a window in features.py, then windrow plan: the sorted events are used again")
    print("and read docs/features.md, docs/views.md, docs/online.md and docs/consistency.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
