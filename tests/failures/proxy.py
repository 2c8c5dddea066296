"""A proxy before an object store that loses the connection at a chosen request.

A process of its own, since delta-rs may hold the interpreter's lock while it waits. It reads a
line of JSON per command and answers each with one:

    {"lose": n, "answer": false}    forward n requests that write, lose the one after them, and
                                    refuse everything from then on; with "answer", that request
                                    is carried out, and only its answer is lost
    {"lose": -1, "only": "GET"}     lose every request of one method, and forward the others
    {"lose": null}                  forward everything again; the answer tells how many requests
                                    that write have come since the last command
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write, at once
    disable_nagle_algorithm = True
    target: ClassVar[int]
    lock: ClassVar[threading.Lock] = threading.Lock()
    lose: ClassVar[int | None] = None
    answer: ClassVar[bool] = False
    only: ClassVar[str | None] = None
    writes: ClassVar[int] = 0

    def _forward(self) -> None:
        body = self._body()
        with Handler.lock:
            writes = self.command in ("PUT", "POST", "DELETE")
            last = writes and Handler.writes == Handler.lose
            lost = Handler.lose is not None and Handler.writes > Handler.lose
            Handler.writes += writes
            if Handler.only is not None:
                lost = self.command == Handler.only
        self.close_connection = True
        if lost or (last and not Handler.answer):
            return  # the connection is closed without a word
        upstream = http.client.HTTPConnection("127.0.0.1", Handler.target)
        upstream.request(self.command, self.path, body, dict(self.headers))
        found = upstream.getresponse()
        content = found.read()
        if last:
            return
        self.close_connection = False
        self.send_response_only(found.status, found.reason)
        for name, value in found.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = found.headers.get("Content-Length", 0) if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            del self.headers["Transfer-Encoding"]
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    def handle_expect_100(self) -> bool:
        found = super().handle_expect_100()
        self.wfile.flush()
        return found

    def log_message(self, *_: Any) -> None: ...


def serve(target: int) -> None:
    Handler.target = target
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients go away
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        with Handler.lock:
            writes, Handler.writes = Handler.writes, 0
            Handler.lose, Handler.answer = command["lose"], command.get("answer", False)
            Handler.only = command.get("only")
        print(writes, flush=True)


class Proxy:
    """The proxy's process, as tests use it."""

    def __init__(self, target: int) -> None:
        command = [sys.executable, __file__, str(target)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def lose(self, request: int, *, answer: bool) -> None:
        self._ask({"lose": request, "answer": answer})

    def lose_every(self, method: str) -> None:
        self._ask({"lose": -1, "only": method})

    def heal(self) -> int:
        """Let everything pass; how many requests to write there were."""
        return self._ask({"lose": None})

    def _ask(self, command: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
