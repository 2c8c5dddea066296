"""`windrow stream`: what arrives in the streams of sources is taken in; `windrow jars`."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.commands.run import Stop, stopped_by_signals
from windrow.online.streams.figures import line, serve
from windrow.spark.jars import fetch
from windrow.workspace import Workspace


def stream(
    workspace: Workspace,
    names: Sequence[str] = (),
    *,
    once: bool = False,
    trigger: float = 0.5,
    metrics: str | None = None,
    stop: Stop | None = None,
) -> None:
    """Run the streams of sources until Ctrl-C, SIGTERM, or `stop` is asked; or `once`.

    Groups that are served follow.
    """
    stop = stop or Stop()
    sources = workspace.streamed(names)
    with workspace.project() as project:
        project.spark  # noqa: B018  it starts here: Spark has a way of its own with Ctrl-C
        with stopped_by_signals(stop):
            groups = [group for group in workspace.groups.values() if group.online]
            after = project.following(*groups)
            streams = project.streams(*sources, once=once, trigger=trigger, after=after)
            server = None if metrics is None else serve(streams.figures.text, metrics)
            try:
                streams.run(
                    lambda: stop.asked, lambda done, lag: print(line(done, lag), flush=True)
                )
            finally:
                if server is not None:
                    server.shutdown()


def fetch_jars() -> None:
    """Fetch the connector, and say where it is."""
    print(f"fetched into {fetch()}")
