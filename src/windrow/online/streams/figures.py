"""What is to be known of streams while they run: a line per micro-batch, and Prometheus' text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from windrow.errors import OptionError
from windrow.online.streams.batches import Done
from windrow.time import now_millis

_KINDS = {
    "rows_total": ("counter", "Rows that were taken in."),
    "quarantined_total": ("counter", "Messages that became no row."),
    "batches_total": ("counter", "Micro-batches that were taken in."),
    "repeated_total": ("counter", "Micro-batches that were there already."),
    "failures_total": ("counter", "Times that the stream had to be started again, or to wait."),
    "batch_seconds": ("gauge", "How long the last micro-batch took."),
    "rows_per_second": ("gauge", "Rows of the last micro-batch, by the time it took."),
    "freshness_seconds": ("gauge", "From the newest message being sent to its row being there."),
    "lag_messages": ("gauge", "Messages of Kafka that are not taken in yet."),
    "last_batch_timestamp_seconds": ("gauge", "When the last micro-batch was taken in."),
}


@dataclass
class Figures:
    """Of the streams of this process, by name. Shared by threads."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, name: str) -> None:
        with self._lock:
            zeros = {one: 0.0 for one, (kind, _) in _KINDS.items() if kind == "counter"}
            self.values.setdefault(name, zeros)

    def add(self, done: Done, lag: int | None) -> None:
        with self._lock:
            own = self.values[done.name]
            own["repeated_total" if done.repeated else "batches_total"] += 1
            if lag is not None:
                own["lag_messages"] = lag
            if done.repeated:
                return
            own["rows_total"] += done.rows
            own["quarantined_total"] += done.quarantined
            own["batch_seconds"] = done.seconds
            own["rows_per_second"] = done.rows / max(done.seconds, 1e-9)
            own["last_batch_timestamp_seconds"] = done.at / 1000
            if done.newest is not None:
                own["freshness_seconds"] = max(0, done.at - done.newest) / 1000

    def failed(self, name: str) -> None:
        with self._lock:
            self.values[name]["failures_total"] += 1

    def text(self) -> str:
        """In the text format of Prometheus.

        >>> figures = Figures()
        >>> figures.begin("views")
        >>> figures.text().splitlines()[:3]  # doctest: +NORMALIZE_WHITESPACE
        ['# HELP windrow_stream_rows_total Rows that were taken in.',
         '# TYPE windrow_stream_rows_total counter',
         'windrow_stream_rows_total{stream="views"} 0']
        """
        lines = []
        with self._lock:
            for name, (kind, help) in _KINDS.items():
                found = [(s, own[name]) for s, own in sorted(self.values.items()) if name in own]
                if not found:
                    continue
                full = f"windrow_stream_{name}"
                lines += [f"# HELP {full} {help}", f"# TYPE {full} {kind}"]
                lines += [f'{full}{{stream="{stream}"}} {value:.12g}' for stream, value in found]
        return "\n".join(lines) + "\n"


def line(done: Done, lag: int | None) -> str:
    """A micro-batch, for people.

    >>> print(line(Done("views", 3, 9, rows=1200, quarantined=2, seconds=0.5), 40))
    views  batch 3: 1,200 rows in 0.50 s (2,400 rows/s), 2 quarantined, 40 behind
    """
    what = f"{done.name}  batch {done.number}: "
    if done.repeated:
        return f"{what}it was there already"
    rate = done.rows / max(done.seconds, 1e-9)
    text = f"{what}{done.rows:,} rows in {done.seconds:.2f} s ({rate:,.0f} rows/s)"
    if done.quarantined:
        text += f", {done.quarantined:,} quarantined"
    if lag is not None:
        text += f", {lag:,} behind"
    if done.newest is not None:
        text += f", {max(0, now_millis() - done.newest) / 1000:.1f} s after the newest"
    return text


def serve(text: Callable[[], str], address: str) -> ThreadingHTTPServer:
    """Answer every GET at `address`, PORT or HOST:PORT, with `text`; on loopback by default."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise OptionError(f"{address!r} is no address for metrics; give PORT or HOST:PORT")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
    except OSError as error:
        raise OptionError(f"metrics cannot be served at {address}: {error}") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
