"""Random SIGKILLs of whatever writes, and a count of what came of them as one line of JSON.

    python tests/campaigns/kills.py --kills 100 [--seed 0] [shards] [backfills] [tables] [sources]

The kills are shared equally among what is named, or among all four: processes at work on a shard;
backfills; statements and ticks on tables and views over them; ticks that take over what changed in
sources. A wrong row, a lost statement or a leftover without bound ends it with an AssertionError.
Campaigns with different seeds add up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import backfill_kills
import shard_kills
import view_kills

WHAT = ("shards", "backfills", *view_kills.SCENES)


def campaign(what: str, folder: Path, kills: int, seed: int) -> Counter[str]:
    folder.mkdir()
    if what == "shards":
        return shard_kills.campaign(folder, kills, seed)
    if what == "backfills":
        return backfill_kills.campaign(folder, kills, seed)
    from windrow.spark.session import local_session

    spark = local_session("kills", cores="2")
    spark.sparkContext.setLogLevel("OFF")
    return view_kills.campaign(folder, kills, seed, spark, scene=what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", help=f"any of {', '.join(WHAT)}; all of them")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = given.what or WHAT
    if not set(chosen) <= set(WHAT):
        parser.error(f"choose from {', '.join(WHAT)}")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        for number, what in enumerate(chosen):
            kills = given.kills * (number + 1) // len(chosen) - given.kills * number // len(chosen)
            counts += campaign(what, Path(folder) / what, kills, given.seed)
    print(json.dumps({"seed": given.seed, **counts}))


if __name__ == "__main__":
    main()
