"""From the plan of the first rows to the stages that run it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from windrow.views.plan.nodes import Arrangement, TopRows
from windrow.views.plan.tops import BoundedTop, MonotonicTop, SortedTop, StackedTop
from windrow.views.run import top_monotonic, top_sorted, top_stack
from windrow.views.run.stages import Stage
from windrow.views.run.task import Arranged, Job
from windrow.views.run.topping import Ranked, Top

Bind = Callable[[Arrangement], Arranged]  # what is kept, in the collection that it has here
About = tuple[Job, int, pa.Schema, pa.Schema]  # what every stage has


def ranked_of(node: TopRows) -> Ranked:
    return Ranked(
        node.schema,
        node.key,
        Top(node.function, node.limit, node.offset),
        node.directions,
        node.peers,
        node.width,
        node.rank is not None,
    )


def can_thin(node: TopRows) -> bool:
    """Whether rows behind the first of a task can be dropped at any time, not only in a fill."""
    return isinstance(node, MonotonicTop)


def stored_of(node: TopRows, bind: Bind) -> Arranged | top_stack.Level | None:
    """What holds all rows, and is written where they are dropped."""
    match node:
        case SortedTop():
            return bind(node.rows)
        case BoundedTop():
            return bind(node.rows)
        case StackedTop():
            return _levels(node, bind, 1)[0]
    return None


def stage_of(node: TopRows, about: About, ranked: Ranked, bind: Bind) -> Stage:
    match node:
        case MonotonicTop():
            return top_monotonic.MonotonicTop(*about, ranked, bind(node.tops))
        case SortedTop():
            return top_sorted.SortedTop(*about, ranked, bind(node.rows), bind(node.tops))
        case BoundedTop():
            level = top_stack.Level(bind(node.rows), 1, None)
            return top_stack.StackedTop(*about, ranked, (level,))
        case StackedTop():
            levels = _levels(node, bind, len(node.levels))
            return top_stack.StackedTop(*about, ranked, levels)
    raise NotImplementedError(type(node).__name__)


def _levels(node: StackedTop, bind: Bind, count: int) -> tuple[top_stack.Level, ...]:
    return tuple(
        top_stack.Level(bind(arrangement), modulus, node.bucket if modulus > 1 else None)
        for modulus, arrangement in node.levels[:count]
    )
