"""Looking at the nodes of Catalyst's trees: plans, expressions, and Scala's collections of them.

Every look is a call to the JVM, and planning a view takes thousands of them. Nodes never change, so
what was read of one is remembered for a while; so are classes, which py4j finds by trying each
package of a name in turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

MOST_READ = 20_000  # facts that are remembered; then all are forgotten
_LEAVES = frozenset({"AttributeReference", "Literal", "LogicalRDD"})  # most of all nodes
# By connection, object and what was read of it. The JVM never gives the name of an object again.
_read: dict[tuple[Any, str, str], Any] = {}
_classes: dict[tuple[Any, str], Any] = {}


def once(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """Let a function of a node that never changes read it only once."""
    what = f"{read.__module__}.{read.__qualname__}"

    @functools.wraps(read)
    def remembered(node: Any) -> T:
        key = (node._gateway_client, node._target_id, what)
        if key in _read:
            known: T = _read[key]
            return known
        found = read(node)
        if len(_read) >= MOST_READ:
            _read.clear()
        _read[key] = found
        return found

    return remembered


def java(session: SparkSession, name: str) -> Any:
    """A Java class or Scala object by its full name."""
    found: Any = session._jvm
    key = (found._gateway_client, name)
    if key not in _classes:
        for part in name.split("."):
            found = getattr(found, part)
        _classes[key] = found
    return _classes[key]


def is_a(session: SparkSession, value: Any, name: str) -> bool:
    """Whether a value is an object of a class, or of one that extends it."""
    from py4j.java_gateway import JavaObject

    types = java(session, "py4j.reflection.TypeUtil")
    return isinstance(value, JavaObject) and bool(types.isInstanceOf(name, value))


@once
def kind(node: Any) -> str:
    """The class of a plan or expression, without its package."""
    from py4j.protocol import Py4JError

    try:
        return str(node.productPrefix())
    except Py4JError:  # not a case class
        return str(node.getClass().getSimpleName()).removesuffix("$")


@once
def id_of(attribute: Any) -> int:
    """The identity of a named expression."""
    return int(attribute.exprId().id())


@once
def type_text(expression: Any) -> str:
    """The type of an expression, as JSON."""
    return str(expression.dataType().json())


def items(seq: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [seq.apply(i) for i in range(seq.size())]


@once
def _children(node: Any) -> tuple[Any, ...]:
    return () if kind(node) in _LEAVES else tuple(items(node.children()))


@once
def _output(plan: Any) -> tuple[Any, ...]:
    return tuple(items(plan.output()))


def children(node: Any) -> list[Any]:
    """What a plan or an expression is made of, one level down."""
    return list(_children(node))


def output(plan: Any) -> list[Any]:
    """The columns of a plan, as attributes."""
    return list(_output(plan))
