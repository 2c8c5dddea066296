"""Records that grow: new cells of machine words merged into those that are there, by compiled code.

As long as a record's sealed time stays, its cells do too: new ones go between them, or are added to
those that start alike. So a record is copied once, from its old bytes to its new ones, and nothing
is decoded. Records with lanes of states, or whose sealed time moves, are combined by `cells`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from windrow.algebra.words import merge_part
from windrow.online.cells import Cells
from windrow.online.records import COUNT, DIGEST, HEAD, SEALED, Found, Heads, split_records
from windrow.online.served import ServedGroup


def grown(served: ServedGroup, found: Found, new: Cells, heads: Heads) -> list[bytes | None]:
    """The records of all keys with the new cells, and with these heads."""
    parts = served.word_parts
    edges = new.per_key(heads.sealed.size)
    words, ends, sizes = _grown(
        found.data,
        found.at,
        new.start,
        new.words,
        edges,
        served.digest,
        heads.sealed,
        heads.positions,
        parts.counts,
        parts.parts,
        parts.columns,
        parts.widths,
    )
    return split_records(served, words, ends, sizes > 0, heads.positions.shape[1])


@njit(cache=True, nogil=True)
def _grown(
    data: Any,
    at: Any,
    starts: Any,
    words: Any,
    edges: Any,
    digest: Any,
    sealed: Any,
    positions: Any,
    counts: Any,
    parts: Any,
    columns: Any,
    widths: Any,
) -> Any:
    """The words of all records but for their first, where each ends, and how many cells it has."""
    keys, sources, width = at.size, positions.shape[1], words.shape[1]
    ends, sizes = np.empty(keys, np.int64), np.empty(keys, np.int64)
    total = 0
    for k in range(keys):
        n, base = np.int64(0), np.int64(0)
        if at[k] >= 0:
            n, base = data[at[k] + COUNT], at[k] + HEAD + ((data[at[k]] >> 24) & 0xFF)
        i, j, size = np.int64(0), edges[k], np.int64(0)
        while i < n or j < edges[k + 1]:
            if j == edges[k + 1] or (i < n and data[base + i] < starts[j]):
                i += 1
            elif i == n or starts[j] < data[base + i]:
                j += 1
            else:
                i += 1
                j += 1
            size += 1
        sizes[k] = size
        total += HEAD + sources + size * (1 + width)
        ends[k] = total
    out = np.empty(total, np.int64)
    place = 0
    for k in range(keys):
        n, base = np.int64(0), np.int64(0)
        if at[k] >= 0:
            n, base = data[at[k] + COUNT], at[k] + HEAD + ((data[at[k]] >> 24) & 0xFF)
        size = sizes[k]
        out[place] = 0
        out[place + DIGEST], out[place + SEALED], out[place + COUNT] = digest, sealed[k], size
        place += HEAD
        for s in range(sources):
            out[place] = positions[k, s]
            place += 1
        i, j = np.int64(0), edges[k]
        for m in range(size):
            old = i < n and (j == edges[k + 1] or data[base + i] <= starts[j])
            fresh = j < edges[k + 1] and (i == n or starts[j] <= data[base + i])
            out[place + m] = data[base + i] if old else starts[j]
            for c in range(width):
                cell = place + size * (1 + c) + m
                out[cell] = data[base + n * (1 + c) + i] if old else words[j, c]
            if old and fresh:
                _add(out, place + m, size, words, j, counts, parts, columns, widths)
            i += old
            j += fresh
        place += size * (1 + width)
    return out, ends, sizes


@njit(cache=True, nogil=True)
def _add(
    out: Any,
    cell: Any,
    size: Any,
    words: Any,
    row: Any,
    counts: Any,
    parts: Any,
    columns: Any,
    widths: Any,
) -> None:
    """Merge a row of words into a cell of a record that is being written."""
    for p in range(parts.size):
        if words[row, counts[p]] == 0:
            continue
        c = columns[p]
        here = cell + size * (1 + c)
        if parts[p] == 0:
            out[here] += words[row, c]
            continue
        # The COUNT part comes after the others of its values: it still tells the first.
        first = out[cell + size * (1 + counts[p])] == 0
        if widths[p] == 1:
            a, _ = merge_part(parts[p], first, out[here], np.int64(0), words[row, c], np.int64(0))
            out[here] = a
        else:
            a, b = merge_part(
                parts[p], first, out[here], out[here + size], words[row, c], words[row, c + 1]
            )
            out[here], out[here + size] = a, b
