"""A driver for the campaign: backfills the project in the folder that each request names.

Its argument are the sizes SLICE_ROWS, STEP_ROWS and FEW_QUERIES as JSON. An answer is what a
backfill did, or why it failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from drivers import Request, serve

from windrow.arrangements import find as arrangements
from windrow.features import limits
from windrow.workspace import Workspace


def work(spark: Any, requests: Iterator[Request]) -> Iterator[Request]:
    limits.SLICE_ROWS, arrangements.STEP_ROWS, limits.FEW_QUERIES = json.loads(sys.argv[2])
    for request in requests:
        workspace = Workspace.load(request["project"])
        project = workspace.project()
        try:
            project.backfill(workspace.join("training"))
            yield asdict(project.summary)  # type: ignore[call-overload]
        except Exception as error:
            yield {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    serve(work)
