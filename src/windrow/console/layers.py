"""A layered layout: nodes in columns, from what is read to what is made of it, with few crossings.

Every edge goes from a column to a later one. The order within a column follows the neighbours'
places, a few sweeps to and fro; then nodes move towards their neighbours as far as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

_SWEEPS = 6


@dataclass(frozen=True)
class Box:
    """A node where it is drawn."""

    id: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Drawn:
    """A drawing: boxes, lines between them as SVG paths, and its size."""

    boxes: tuple[Box, ...]
    lines: tuple[tuple[str, str, str], ...]  # from, to, path
    width: float
    height: float


def layers_of(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The column of each node: one after the last of those that it is made of.

    >>> layers_of("abc", [("a", "b"), ("b", "c"), ("a", "c")])
    {'a': 0, 'b': 1, 'c': 2}
    """
    before: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in edges:
        before[end].append(start)
    found: dict[str, int] = {}
    for node in nodes:
        stack = [(node, iter(before[node]))]
        open_: set[str] = {node}
        while stack:  # without recursion: chains of views may be long
            here, rest = stack[-1]
            nearest = next((one for one in rest if one not in found and one not in open_), None)
            if nearest is not None:
                open_.add(nearest)
                stack.append((nearest, iter(before[nearest])))
                continue
            found[here] = max((found.get(one, -1) for one in before[here]), default=-1) + 1
            stack.pop()
    return {node: found[node] for node in nodes}


def laid_out(
    nodes: Sequence[str],
    edges: Sequence[tuple[str, str]],
    size: tuple[float, float] = (168, 40),
    gaps: tuple[float, float] = (56, 14),
    *,
    heights: Mapping[str, float] | None = None,
    downwards: bool = False,
) -> Drawn:
    """Boxes of one size (or of different heights) in columns; in rows, if it goes downwards."""
    known = set(nodes)
    edges = [one for one in dict.fromkeys(edges) if one[0] in known and one[1] in known]
    column = layers_of(nodes, edges)
    columns: list[list[str]] = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for node in nodes:
        columns[column[node]].append(node)
    neighbours: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in edges:
        neighbours[start].append(end)
        neighbours[end].append(start)
    _sort(columns, column, neighbours)
    tall = heights or {}
    width, height = size
    if downwards:
        return _rows(columns, edges, neighbours, size, gaps, tall)
    places = _places(columns, neighbours, lambda node: tall.get(node, height), gaps[1])
    boxes = {
        node: Box(
            node, column[node] * (width + gaps[0]), places[node], width, tall.get(node, height)
        )
        for node in nodes
    }
    lines = []
    for start, end in edges:
        a, b = boxes[start], boxes[end]
        x0, y0, x1, y1 = a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2
        bend = max(24.0, (x1 - x0) / 2)
        lines.append((start, end, _path((x0, y0), (x0 + bend, y0), (x1 - bend, y1), (x1, y1))))
    return _drawn(boxes, lines)


def _rows(
    rows: Sequence[Sequence[str]],
    edges: Sequence[tuple[str, str]],
    neighbours: Mapping[str, Sequence[str]],
    size: tuple[float, float],
    gaps: tuple[float, float],
    tall: Mapping[str, float],
) -> Drawn:
    width, height = size
    places = _places(rows, neighbours, lambda node: width, gaps[0])
    boxes: dict[str, Box] = {}
    y = 0.0
    for row in rows:
        for node in row:
            boxes[node] = Box(node, places[node], y, width, tall.get(node, height))
        y += max((tall.get(node, height) for node in row), default=0) + gaps[1]
    lines = []
    for start, end in edges:
        a, b = boxes[start], boxes[end]
        x0, y0, x1, y1 = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y
        bend = (y1 - y0) / 2
        lines.append((start, end, _path((x0, y0), (x0, y0 + bend), (x1, y1 - bend), (x1, y1))))
    return _drawn(boxes, lines)


def _path(*points: tuple[float, float]) -> str:
    """A curve from the first point to the last, as the two between them pull it."""
    first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
    return f"M{first}C{' '.join(rest)}"


def _drawn(boxes: Mapping[str, Box], lines: Sequence[tuple[str, str, str]]) -> Drawn:
    width = max((box.x + box.width for box in boxes.values()), default=0)
    height = max((box.y + box.height for box in boxes.values()), default=0)
    return Drawn(tuple(boxes.values()), tuple(lines), width, height)


def _sort(
    columns: list[list[str]], column: Mapping[str, int], neighbours: Mapping[str, Sequence[str]]
) -> None:
    """Order each column by the middle of its neighbours' places, from either side in turn."""
    place = {node: at for several in columns for at, node in enumerate(several)}
    for sweep in range(_SWEEPS):
        side = 1 if sweep % 2 else -1
        for several in columns if side < 0 else reversed(columns):
            middle: dict[str, float] = {}
            for node in several:
                near = sorted(
                    place[one]
                    for one in neighbours[node]
                    if (column[one] - column[node]) * side > 0
                )
                middle[node] = (
                    (near[(len(near) - 1) // 2] + near[len(near) // 2]) / 2 if near else place[node]
                )
            several.sort(key=lambda node: (middle[node], place[node]))
            place.update((node, at) for at, node in enumerate(several))


def _places(
    columns: Sequence[Sequence[str]],
    neighbours: Mapping[str, Sequence[str]],
    extent: Callable[[str], float],
    gap: float,
) -> dict[str, float]:
    """Where each node begins, across the columns: near its neighbours, in the order that it has."""
    size = {node: extent(node) for several in columns for node in several}
    place: dict[str, float] = {}
    for several in columns:
        at = 0.0
        for node in several:
            place[node] = at
            at += size[node] + gap
    for sweep in range(_SWEEPS):
        for several in columns if sweep % 2 == 0 else reversed(columns):
            wanted = []
            for node in several:
                near = [place[one] + size[one] / 2 for one in neighbours[node]]
                middle = sum(near) / len(near) if near else place[node] + size[node] / 2
                wanted.append(middle - size[node] / 2)
            place.update(zip(several, _apart(several, wanted, size, gap), strict=True))
    lowest = min(place.values(), default=0.0)
    return {node: at - lowest for node, at in place.items()}


def _apart(
    nodes: Sequence[str], wanted: Sequence[float], size: Mapping[str, float], gap: float
) -> list[float]:
    """Places as near as possible to those wanted, in order and without overlaps.

    Neighbours that want to be in each other's place move together: to the mean of their wishes.
    """
    blocks: list[tuple[float, float, int]] = []  # start, extent, members
    for node, want in zip(nodes, wanted, strict=True):
        start, extent, members = want, size[node] + gap, 1
        while blocks and blocks[-1][0] + blocks[-1][1] > start:
            before, wide, others = blocks.pop()
            # The block as a whole: each of its members pulls it to where it wanted to be.
            start = (before * others + (start - wide) * members) / (others + members)
            extent, members = extent + wide, members + others
        blocks.append((start, extent, members))
    found: list[float] = []
    rest = iter(nodes)
    for start, _, members in blocks:
        at = start
        for _ in range(members):
            found.append(at)
            at += size[next(rest)] + gap
    return found
