"""An object store whose every answer takes its time: the files of a folder, read by S3's protocol.

It answers what readers ask (HEAD, GET with a range, a listing by prefix) and nothing else, from
one thread that never waits, so that what it adds to a request is the delay and little more.

    python benchmarks/slow_store.py FOLDER MILLISECONDS

prints its port, and ends when its input is closed. The bucket's name does not matter.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextmanager
def slow_store(folder: Path, milliseconds: int) -> Iterator[dict[str, str]]:
    """Serve `folder` from a process of its own; gives storage options to reach it."""
    command = [sys.executable, __file__, str(folder), str(milliseconds)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        server.communicate()


class Server:
    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other, until the client hangs up."""
        try:
            while line := (await reader.readline()).decode().split():
                headers = {}
                while header := (await reader.readline()).decode().strip():
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                await asyncio.sleep(self._seconds)
                self._answer(line[0], line[1], headers, writer)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> None:
        url = urlsplit(target)
        query = parse_qs(url.query)
        name = unquote(url.path).lstrip("/").partition("/")[2]  # without the bucket
        if "list-type" in query:
            body = self._listing(query.get("prefix", [""])[0])
            return _respond(writer, "200 OK", {"Content-Type": "application/xml"}, body)
        path = self._folder / name
        if not name or not path.is_file():
            return _respond(writer, "404 Not Found", {}, b"")
        size = path.stat().st_size
        fields = {
            "Last-Modified": formatdate(path.stat().st_mtime, usegmt=True),
            "ETag": f'"{size:x}"',
            "Accept-Ranges": "bytes",
        }
        if method == "HEAD":
            return _respond(writer, "200 OK", fields, b"", length=size)
        start, end = _range(headers.get("range", ""), size)
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(end - start)
        if "range" not in headers:
            return _respond(writer, "200 OK", fields, body)
        fields["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return _respond(writer, "206 Partial Content", fields, body)

    def _listing(self, prefix: str) -> bytes:
        entries = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = Path(folder) / name
                key = path.relative_to(self._folder).as_posix()
                if key.startswith(prefix):
                    entries.append((key, path.stat()))
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{found.st_size}</Size>"
            f"<LastModified>{_iso(found.st_mtime)}</LastModified>"
            f"<ETag>&quot;{found.st_size:x}&quot;</ETag></Contents>"
            for key, found in sorted(entries)
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount>"
            f"<MaxKeys>1000000</MaxKeys><IsTruncated>false</IsTruncated>{contents}"
            "</ListBucketResult>"
        ).encode()


def _iso(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _range(text: str, size: int) -> tuple[int, int]:
    """[start, end) of a Range header; all without one."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not text:
        return 0, size
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


def _respond(
    writer: asyncio.StreamWriter,
    status: str,
    fields: dict[str, str],
    body: bytes,
    *,
    length: int | None = None,
) -> None:
    fields = fields | {"Content-Length": str(len(body) if length is None else length)}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)


async def serve(folder: Path, seconds: float) -> None:
    server = await asyncio.start_server(Server(folder, seconds).connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # connections that are kept alive are nobody's concern


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]) / 1000))
