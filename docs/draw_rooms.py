"""Draw the map of the rooms from the imports that are in the code.

`make rooms` writes the maps (`rooms.svg`, and one each for the larger rooms) and the tables of
`rooms.md`; a test checks that they are up to date. A room is a module or a package directly beneath
the one that is drawn. Arrows point from a room to those it imports from; one that other arrows
already imply is left out of the drawing, but not of the table.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import fsum
from pathlib import Path

import grimp

FOLDER = Path(__file__).parent
MAPS = {
    "windrow": "rooms.svg",
    "windrow.features": "rooms_features.svg",
    "windrow.views": "rooms_views.svg",
}

BOX, LEVEL, PAD = (132, 34), 74, 16
STYLE = """
  text { font: 600 14px system-ui, sans-serif; text-anchor: middle; fill: #2d2a20; }
  rect { fill: #f5efdc; stroke: #9a8a55; }
  path { fill: none; stroke: #7a6f4a; stroke-width: 1.4; }
  @media (prefers-color-scheme: dark) {
    text { fill: #efe9d6; } rect { fill: #3a3626; stroke: #b3a36d; } path { stroke: #b3a36d; }
  }
"""


@dataclass(frozen=True)
class Rooms:
    """The rooms of a package: what each says of itself, and from which others it imports."""

    about: Mapping[str, str]
    imports: Mapping[str, frozenset[str]]

    @staticmethod
    def of(package: str) -> Rooms:
        graph = grimp.build_graph("windrow", cache_dir=None)
        names = {child.rpartition(".")[2]: child for child in graph.find_children(package)}

        def room(module: str) -> str | None:
            inside = module.removeprefix(f"{package}.")
            return inside.partition(".")[0] if inside != module else None

        imports: dict[str, set[str]] = {name: set() for name in names}
        for module in graph.modules:
            here = room(module)
            if here is not None:
                found = map(room, graph.find_modules_directly_imported_by(module))
                imports[here] |= {there for there in found if there not in (None, here)}
        about = {name: _first_sentence(module) for name, module in names.items()}
        return Rooms(about, {name: frozenset(found) for name, found in imports.items()})

    def level(self, room: str) -> int:
        """How many rooms lie below this one, counted along the longest way down."""
        return 1 + max(map(self.level, self.imports[room]), default=-1)

    def below(self, room: str) -> frozenset[str]:
        """All rooms that this one imports from, directly or not."""
        found = self.imports[room]
        return found.union(*map(self.below, found))

    def arrows(self) -> list[tuple[str, str]]:
        """The imports that no other path implies."""
        return sorted(
            (room, found)
            for room, all_found in self.imports.items()
            for found in all_found
            if not any(found in self.below(other) for other in all_found)
        )

    def from_the_top(self) -> list[str]:
        return sorted(self.imports, key=lambda room: (-self.level(room), room))


def _first_sentence(module: str) -> str:
    """What a module's docstring says first, without a name that it repeats."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def svg(rooms: Rooms) -> str:
    """The rooms by level, each arrow a line that passes between the boxes of other levels."""
    paths = []  # every arrow as the places it goes through: rooms at its ends, gaps between
    levels: list[list[str]] = [[] for _ in range(max(map(rooms.level, rooms.imports)) + 1)]
    for room in rooms.from_the_top():
        levels[rooms.level(room)].append(room)
    for start, end in rooms.arrows():
        between = range(rooms.level(start) - 1, rooms.level(end), -1)
        gaps = [f"{start}>{end}@{level}" for level in between]
        for level, gap in zip(between, gaps, strict=True):
            levels[level].append(gap)
        paths.append([start, *gaps, end])
    _untangle(levels, paths)

    width = max(map(len, levels)) * (BOX[0] + PAD) + PAD
    place = {}
    for level, names in enumerate(levels):
        y = PAD + (len(levels) - 1 - level) * LEVEL
        for index, name in enumerate(names):
            place[name] = (width * (index + 0.5) / len(names), y)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{PAD * 2 + (len(levels) - 1) * LEVEL + BOX[1]}" role="img">',
        "<title>The rooms, and from which others each imports</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M1 1 7 4 1 7"/></marker></defs>',
    ]
    for path in paths:
        x, y = place[path[0]]
        y += BOX[1]
        line = f"M{x:.0f} {y:.0f}"
        for name in path[1:]:
            to_x, to_y = place[name]
            half = (y + to_y) / 2
            line += f" C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}"
            x, y = to_x, to_y
            if ">" in name:  # straight through a level
                y += BOX[1]
                line += f" V{y:.0f}"
        lines.append(f'<path d="{line}" marker-end="url(#tip)"/>')
    for room in rooms.from_the_top():
        x, y = place[room]
        lines.append(
            f'<rect x="{x - BOX[0] / 2:.0f}" y="{y:.0f}" '
            f'width="{BOX[0]}" height="{BOX[1]}" rx="5"/>'
            f'<text x="{x:.0f}" y="{y + 22:.0f}">{room}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _untangle(levels: list[list[str]], paths: Sequence[Sequence[str]]) -> None:
    """Order each level by where its neighbours stand, so that few arrows cross."""
    steps = {step for path in paths for step in pairwise(path)}
    for _ in range(8):
        for rows in (levels, levels[::-1]):
            for fixed, moved in pairwise(rows):
                at = {name: (index + 0.5) / len(fixed) for index, name in enumerate(fixed)}
                moved.sort(key=partial(_middle, steps, at))


def _middle(steps: Set[tuple[str, str]], at: Mapping[str, float], name: str) -> tuple[float, str]:
    near = [at[b] for a, b in steps if a == name and b in at]
    near += [at[a] for a, b in steps if b == name and a in at]
    return (fsum(near) / len(near) if near else 0.5), name


def table(rooms: Rooms) -> str:
    rows = ["| room | what it knows | imports from |", "| --- | --- | --- |"]
    order = rooms.from_the_top()
    for room in order:
        found = ", ".join(f"`{name}`" for name in order if name in rooms.imports[room])
        rows.append(f"| `{room}` | {rooms.about[room]} | {found or 'none'} |")
    return "\n".join(rows)


@cache
def drawn() -> dict[Path, str]:
    """Every file that is drawn, with the content it should have."""
    page = (FOLDER / "rooms.md").read_text()
    files = {}
    for package, file in MAPS.items():
        rooms = Rooms.of(package)
        files[FOLDER / file] = svg(rooms)
        start, end = f"<!-- {package}: drawn by make rooms -->", "<!-- end -->"
        before, found, rest = page.partition(start)
        assert found, f"rooms.md has no line {start}"
        page = f"{before}{start}\n\n{table(rooms)}\n\n{end}{rest.partition(end)[2]}"
    return {**files, FOLDER / "rooms.md": page}


if __name__ == "__main__":
    for path, content in drawn().items():
        path.write_text(content)
