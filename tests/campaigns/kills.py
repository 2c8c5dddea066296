"""Random SIGKILLs of whatever writes, and a count of what came of them as one line of JSON.

    python tests/campaigns/kills.py --kills 100

Half of the kills are of processes at work on a shard, half of those of backfills. A wrong row, a
lost append or a leftover without bound ends it with an AssertionError.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--backfill-kills", type=int, help="of those; half, unless said otherwise")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    backfills = given.kills // 2 if given.backfill_kills is None else given.backfill_kills
    with tempfile.TemporaryDirectory(prefix="windrow-kills-") as folder:
        counts = shard_kills.campaign(Path(folder), given.kills - backfills, given.seed)
        counts += backfill_kills.campaign(Path(folder), backfills, given.seed)
    print(json.dumps({"seed": given.seed, **counts}))


if __name__ == "__main__":
    main()
