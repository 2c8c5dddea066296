"""How long the console's pages take with 500 views and 5,000 features in the catalogue.

`python benchmarks/console.py` makes such a project, without Spark, asks for every page many times
over, and prints one line of JSON: the median of each page in milliseconds, and of the slowest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from console_data import large
from windrow.console.app import Console
from windrow.console.looking import Looking
from windrow.console.sessions import Visitors
from windrow.online.server.tokens import Tokens
from windrow.project import Project

PAGES = {
    "overview": "",
    "lineage": "lineage",
    "lineage_of": "lineage?of=view%3Aview_7",
    "views": "views",
    "views_found": "views?q=view_4&from=50",
    "view": "view?name=view_{n}",
    "relations": "relations",
    "relation": "relation?name=table_{t}",
    "features": "features?from=2500",
    "feature": "feature?group=group_{g}&name=column_1_sum_7d",
    "fetch": "feature?group=group_{g}&name=column_1_sum_7d&key.user_id=7",
    "group": "group?name=group_{g}",
    "join": "join?name=join_1",
    "source": "source?name=source_1",
    "ticks": "ticks",
    "arrangements": "arrangements",
    "consistency": "consistency",
    "search": "search?q=column_2",
}


async def ask(console: Console, page: str) -> tuple[int, bytes]:
    """One page."""
    path, _, query = page.partition("?")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"path": f"/console/{path}", "query_string": query.encode(), "method": "GET"}
    await console({**scope, "type": "http", "headers": []}, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def measured(console: Console, rounds: int) -> dict[str, float]:
    """Milliseconds of each page, in the median; pages are asked for by turns."""
    took: dict[str, list[float]] = {name: [] for name in PAGES}
    for number in range(rounds):
        for name, page in PAGES.items():
            address = page.format(n=number % 500, t=number % 20, g=number % 250)
            began = time.perf_counter()
            status, _ = await ask(console, address)
            took[name].append(1000 * (time.perf_counter() - began))
            assert status == 200, address
    return {name: round(statistics.median(found), 2) for name, found in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--views", type=int, default=500)
    parser.add_argument("--groups", type=int, default=250)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        definitions = large(Path(folder), args.views, args.groups)
        looking = Looking(Project(folder, progress=False), definitions)
        console = Console(looking, Visitors(Tokens()))
        found = asyncio.run(measured(console, args.rounds))
        console.close()
    features = sum(len(group.features) for group in definitions.groups.values())
    print(
        json.dumps(
            {
                "console_views": args.views,
                "console_features": features,
                "console_slowest_p50_ms": max(found.values()),
                "console_p50_ms": found,
            }
        )
    )


if __name__ == "__main__":
    main()
