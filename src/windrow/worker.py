"""The process that Spark forks Python workers from, with everything loaded that a task needs.

A job with several Python stages needs a worker for each. Modules and compiled kernels that are
loaded before the fork are there at once and share their memory; loading them takes each worker
seconds. Sessions that Windrow starts use it (`spark.python.daemon.module`); set it in yours.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any


def load() -> None:
    """Load what tasks use, and run the kernels once on a few rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    import windrow.features.strategies.merge
    import windrow.features.strategies.tiles.job  # noqa: F401
    from windrow.rows.hashing import hash_keys, hash_rows
    from windrow.views.run import paths, reducing, stages, topping  # noqa: F401
    from windrow.views.run.weighted import Weighted, number_rows
    from windrow.words.consolidation import consolidate_words

    importlib.import_module("pandas")  # Spark's workers import it
    for values in (["a", "b", "b"], [1, 2, 2], [1.0, 2.0, 2.0], [True, None, True]):
        table = pa.table({"x": pa.array(values), "k": pa.array([1, 2, 2])})
        columns = [column.combine_chunks() for column in table.columns]
        columns = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        Weighted(table, np.ones(3, np.int64)).consolidated()
        number_rows([table])
        words = np.vstack([hash_keys(columns), hash_rows(columns)])
        consolidate_words(words, np.ones(3, np.int64), columns)


def without_trace(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends in silence when Spark reads no further: a query with LIMIT has enough."""

    def run(*args: Any) -> int:
        try:
            return worker(*args)
        except BrokenPipeError:
            os._exit(1)  # a fork of the daemon, which would print how it ended

    return run


if __name__ == "__main__":
    from pyspark import daemon

    from windrow.spark.heap import freeze_modules

    load()
    freeze_modules()
    daemon.worker = without_trace(daemon.worker)
    daemon.manager()
