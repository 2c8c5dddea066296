"""A stream is told to stop while a micro-batch begins."""

from __future__ import annotations

import threading
from typing import Any

import windrow as wr
from windrow.online.streams.running import StreamRun, _Stopping


class Query:
    """Waits, when it is stopped, for its micro-batch, as Spark does; one begins at that moment."""

    def __init__(self, run: StreamRun) -> None:
        self._run, self.raised = run, False

    def stop(self) -> None:
        batch = threading.Thread(target=self._batch, daemon=True)
        batch.start()
        batch.join(30)
        assert not batch.is_alive(), "the micro-batch waits for whoever stops it"

    def _batch(self) -> None:
        nothing: Any = None
        try:
            self._run._take(nothing, nothing, 1)
        except _Stopping:
            self.raised = True


def test_a_micro_batch_that_begins_while_the_query_is_stopped() -> None:
    nothing: Any = None
    source = wr.EventSource("s", time="t", stream=wr.FolderStream("in", schema="k INT, t BIGINT"))
    run = StreamRun(nothing, nothing, source)
    query = run.query = Query(run)
    run.stop()
    assert query.raised
