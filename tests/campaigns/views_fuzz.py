"""Random views for a long time: schemas, queries nested three deep, histories; a line of JSON last.

    python tests/campaigns/views_fuzz.py --examples 200 [--seed 0] [--views 5] [--depth 3]
                                         [--cores 2] [--generated]

Most of an example is planned by Spark, in one thread: two campaigns with other seeds and a core
each get twice as far. `--generated` lets Spark generate code for whole stages, as it does by
default; over a few rows, compiling it takes longer than all else.

Each example is a project with several views, compared with Spark's own answers after the fill and
after every batch. What is wrong is printed with the seed of its example, which gives it again:
`--examples 1 --seed N`. Refusals are counted by reason, each with one query.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

from view_fuzz import VIEWS, Example, head  # noqa: E402

from jvm import JAVA_OPTIONS  # noqa: E402

EVERY = 10  # examples after which it is said how far it is


def run(spark: Any, options: argparse.Namespace) -> dict[str, Any]:
    counts = dict.fromkeys(("examples", "views", "checks", "not_sql", "failed", "wrong"), 0)
    refused: dict[str, str] = {}
    started = time.monotonic()
    for seed in range(options.seed, options.seed + options.examples):
        example = Example.draw(random.Random(seed), seed, options.views, options.depth)
        folder = Path(tempfile.mkdtemp(prefix="windrow-fuzz-"))
        counts["examples"] += 1
        try:
            outcome = example.run(spark, folder)
        except Exception as error:  # a tick that fails, or a statement
            counts["failed"] += 1
            print(f"--- seed {seed} failed: {head(error)}\n{example.describe()}\n", flush=True)
            continue
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts["views"] += outcome.views
        counts["checks"] += outcome.checks
        counts["not_sql"] += len(outcome.not_sql)
        counts["wrong"] += len(outcome.wrong)
        for reason, query in outcome.refused.items():
            if reason not in refused:
                refused[reason] = query
                print(f"--- seed {seed} refused: {reason}\n  query: {query}\n", flush=True)
        for problem in outcome.wrong:
            print(f"--- seed {seed}: {problem}\n", flush=True)
        if counts["examples"] % EVERY == 0:
            print(f"after {time.monotonic() - started:,.0f} s: {counts}", flush=True)
    seconds = round(time.monotonic() - started)
    return {**counts, "refusals": len(refused), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--generated", action="store_true")
    options = parser.parse_args()
    from windrow.spark.session import local_session

    with tempfile.TemporaryDirectory(prefix="windrow-cache-") as cache:
        os.environ.setdefault("WINDROW_CACHE", cache)
        os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        stages = {"spark__sql__codegen__wholeStage": str(options.generated).lower()}
        spark = local_session("views-fuzz", cores=str(options.cores), **stages)
        spark.sparkContext.setLogLevel("OFF")
        counts = run(spark, options)
        spark.stop()
    print(json.dumps(counts))
    sys.exit(1 if counts["wrong"] or counts["failed"] or counts["refusals"] else 0)


if __name__ == "__main__":
    main()
