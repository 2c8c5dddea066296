"""Plots as SVG, inline: numbers in, elements out. Colours are classes, which the page defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from windrow.consistency.equality import OUTCOMES

_WIDTH, _HEIGHT = 640, 120
_LEFT, _BOTTOM = 46, 18
_BARS = 240  # at most: hours next to each other are put together beyond


def bar(counts: Mapping[str, int], label: str) -> str:
    """One line, divided by outcomes."""
    total = sum(counts.values()) or 1
    at, parts = 0.0, []
    for name in OUTCOMES:
        width = 200 * counts[name] / total
        if counts[name]:
            parts.append(
                f'<rect class="{name}" x="{at:.2f}" y="0" width="{max(width, 1):.2f}" height="12">'
                f"<title>{escape(name.replace('_', ' '))}: {counts[name]:,}</title></rect>"
            )
        at += width
    return (
        f'<svg class="bar" viewBox="0 0 200 12" role="img" preserveAspectRatio="none" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def hours(rows: Sequence[tuple[str, Mapping[str, int]]], label: str) -> str:
    """A bar for each hour: the share of values that do not agree, by outcome, on one scale.

    Where all agree there is a line at the bottom.
    """
    rows = _together(rows)
    shares = [_bad(counts) for _, counts in rows]
    top = max([*shares, 0.0])
    scale = 1.0 if top == 0 else min(1.0, _ceiling(top))
    step = (_WIDTH - _LEFT) / max(len(rows), 1)
    inner = _HEIGHT - _BOTTOM - 6
    parts = [
        f'<text class="axis" x="{_LEFT - 6}" y="12" text-anchor="end">{scale:.3g}</text>'
        if top
        else "",
        f'<text class="axis" x="{_LEFT - 6}" y="{6 + inner}" text-anchor="end">0</text>',
        f'<path class="axis" d="M{_LEFT} 6V{6 + inner}H{_WIDTH}"/>',
    ]
    for number, (hour, counts) in enumerate(rows):
        x, total = _LEFT + number * step, sum(counts.values()) or 1
        y = 6.0 + inner
        title = escape(f"{hour}: {total:,} values, {_bad(counts):.4%} do not agree")
        drawn = []
        for name in OUTCOMES[2:]:
            height = inner * counts[name] / total / scale
            if counts[name]:
                y -= height
                drawn.append(
                    f'<rect class="{name}" x="{x:.2f}" y="{y:.2f}" '
                    f'width="{max(step - 1, 1):.2f}" height="{max(height, 1):.2f}"/>'
                )
        if not drawn:
            drawn.append(
                f'<rect class="equal" x="{x:.2f}" y="{4 + inner}" '
                f'width="{max(step - 1, 1):.2f}" height="2"/>'
            )
        parts.append(f"<g><title>{title}</title>{''.join(drawn)}</g>")
    if rows:
        y = _HEIGHT - 4
        parts.append(f'<text class="axis" x="{_LEFT}" y="{y}">{escape(_short(rows[0][0]))}</text>')
        if len(rows) > 1:
            last = escape(_short(rows[-1][0]))
            parts.append(f'<text class="axis" x="{_WIDTH}" y="{y}" text-anchor="end">{last}</text>')
    return (
        f'<svg class="hours" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _bad(counts: Mapping[str, int]) -> float:
    total = sum(counts.values())
    return 0.0 if not total else sum(counts[name] for name in OUTCOMES[2:]) / total


def _together(
    rows: Sequence[tuple[str, Mapping[str, int]]],
) -> Sequence[tuple[str, Mapping[str, int]]]:
    """Neighbouring hours added up, so that bars can still be seen."""
    size = -(-len(rows) // _BARS)
    if size <= 1:
        return rows
    found = []
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        found.append((some[0][0], {n: sum(c[n] for _, c in some) for n in OUTCOMES}))
    return found


def _ceiling(share: float) -> float:
    """A round number not below a share.

    >>> _ceiling(0.3), _ceiling(0.0012), _ceiling(1.0)
    (0.5, 0.002, 1.0)
    """
    step = 1.0
    while step / 10 >= share:
        step /= 10
    return next(round(step * part, 12) for part in (0.1, 0.2, 0.5, 1) if step * part >= share)


def _short(hour: str) -> str:
    return hour[:16].replace("T", " ")
