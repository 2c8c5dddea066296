"""A program that parses Parquet footers, so that damage in one ends this process and no other.

Arrow ends the process for some damage in a footer. On standard input come footers, each after its
length (8 bytes, little endian); for each an answer goes to standard output, after its length: what
is wrong with it, or nothing. Started by `windrow.storage.footers`; it imports nothing of Windrow,
since every first look at a file waits for it.
"""

from __future__ import annotations

import contextlib
import signal
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def wrong_with(footer: bytes) -> str:
    """What an error says of the footer; empty if it can be read, with all its statistics."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
        metadata.schema.to_arrow_schema()
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            for i in range(metadata.num_columns):
                found = group.column(i).statistics
                # A value that Python cannot hold is no damage.
                with contextlib.suppress(Exception):
                    if found is not None and found.has_min_max:
                        _ = found.min, found.max
    except Exception as error:
        return str(error).strip() or type(error).__name__
    return ""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started this
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(8)) == 8:
        answer = wrong_with(source.read(int.from_bytes(head, "little"))).encode()
        target.write(len(answer).to_bytes(8, "little") + answer)
        target.flush()


if __name__ == "__main__":
    main()
