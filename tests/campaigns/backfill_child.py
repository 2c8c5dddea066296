"""A driver for the campaign: backfills the project in the folder of each line that it is given.

Its argument are the sizes SLICE_ROWS, STEP_ROWS and FEW_QUERIES as JSON. Each answer is a line of
JSON: what a backfill did, or why it failed. So tasks can be killed without a new Spark each time.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict


def main() -> None:
    from windrow.arrangements import find as arrangements
    from windrow.features import limits
    from windrow.workspace import Workspace

    limits.SLICE_ROWS, arrangements.STEP_ROWS, limits.FEW_QUERIES = json.loads(sys.argv[1])
    for line in sys.stdin:
        workspace = Workspace.load(line.strip())
        project = workspace.project()
        try:
            project.backfill(workspace.join("training"))
            print(json.dumps(asdict(project.summary)), flush=True)  # type: ignore[call-overload]
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
