"""A chain of DataFrame operations that is analysed once, and put onto one frame after the other.

Spark analyses a DataFrame at each operation, as a whole, and every operation is some calls from
Python. For a frame of a few rows, such as a micro-batch, that takes longer than computing it.

    first frame   make(empty frame of the same columns) ──▶ analysed plan: nodes over a leaf
    each frame    the same nodes, over Project [its columns, as those of the leaf]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windrow.spark.catalyst import Catalyst
from windrow.spark.schemas import empty_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Make = Callable[["DataFrame"], "DataFrame"]


class Prepared:
    """Does what `make` does, to frames that have the columns of the first one.

    `make` may use nothing of a frame but its columns, and nothing of other frames. A frame with
    other columns is prepared anew; where a plan is no chain, `make` itself is called.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._schema: Any = None
        self._known: tuple[Catalyst, list[Any], list[Any]] | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        if self._schema is None or frame.schema != self._schema:
            self._schema, self._known = frame.schema, self._prepared(frame)
        if self._known is None:
            return self._make(frame)
        c, nodes, leaf = self._known
        columns = zip(c.output(c.analyzed(frame)), leaf, strict=True)
        plan = c.project([c.renamed(own, other) for own, other in columns], c.analyzed(frame))
        for node in nodes:
            plan = c.with_children(node, [plan])
        return c.frame(plan)

    def _prepared(self, frame: DataFrame) -> tuple[Catalyst, list[Any], list[Any]] | None:
        """The nodes over a leaf with the frame's columns, the lowest first, and its attributes."""
        c = Catalyst(frame.sparkSession)
        below = empty_frame(frame.sparkSession, frame.schema)
        depth = _depth(c, c.analyzed(below))
        node, nodes = c.analyzed(self._make(below)), list[Any]()
        while len(children := c.children(node)) == 1:
            nodes.append(node)
            (node,) = children
        if depth is None or children or len(nodes) < depth:
            return None
        nodes = nodes[: len(nodes) - depth]
        return c, nodes[::-1], list(c.output(c.analyzed(below)))


def _depth(c: Catalyst, plan: Any) -> int | None:
    """How many nodes there are above the leaf of a chain; None if it is none."""
    depth = 0
    while len(children := c.children(plan)) == 1:
        (plan,), depth = children, depth + 1
    return None if children else depth
