"""Random SIGKILLs of whatever writes, and a count of what came of them as one line of JSON.

    python tests/campaigns/kills.py --kills 100

A fifth of the kills are of processes that change tables and maintain views over them; of the
others, half are of processes at work on a shard, half of those of backfills. A wrong row, a lost
statement or a leftover without bound ends it with an AssertionError.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import backfill_kills
import shard_kills
import view_kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--view-kills", type=int, help="of those; a fifth, unless said otherwise")
    parser.add_argument("--backfill-kills", type=int, help="half of the others, likewise")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    views = given.kills // 5 if given.view_kills is None else given.view_kills
    others = max(given.kills - views, 0)
    backfills = others // 2 if given.backfill_kills is None else given.backfill_kills
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        counts = shard_kills.campaign(Path(folder), others - backfills, given.seed)
        counts += backfill_kills.campaign(Path(folder), backfills, given.seed)
        if views:
            from windrow.spark.session import local_session

            spark = local_session("view-kills", cores="2")
            counts += view_kills.campaign(Path(folder), views, given.seed, spark)
            spark.stop()
    print(json.dumps({"seed": given.seed, **counts}))


if __name__ == "__main__":
    main()
