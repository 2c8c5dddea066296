"""Derived columns of a join as data: Spark analyses their expressions, and what it found is kept.

Only operations that `derived` evaluates by Spark's rules are taken; all others are refused by name
when the join is put online.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from windrow.errors import DefinitionError, SchemaError
from windrow.features.definitions import Join
from windrow.online.derived import NUMBERS, Derived, Tree, supports, supports_cast
from windrow.spark.nodes import items, kind
from windrow.spark.plans import option, plan_of, replacement
from windrow.spark.schemas import arrow_to_spark_schema, empty_frame, spark_to_arrow_schema
from windrow.spark.session import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADVICE = "compute it in the client, leave it out of derive, or set online=False for its groups"
_ARITHMETIC = {"Add", "Subtract", "Multiply", "Divide", "Remainder", "Pmod", "UnaryMinus", "Abs"}


def derive_online(engine: Engine, join: Join, features: pa.Schema, left: pa.Schema) -> Derived:
    """What a join derives, of `features` and of columns on its `left`, which requests give."""
    if not join.derive:
        return Derived()
    known = [*left, *(field for field in features if field.name not in left.names)]
    frame = empty_frame(engine.spark, arrow_to_spark_schema(pa.schema(known)))
    expressions, types = [], []
    used: set[str] = set()
    for name, text in join.derive.items():
        what = f"Join {join.name!r}: derive[{name!r}]"
        frame = _with(frame, name, text, what)
        tree = _tree(items(plan_of(frame).projectList())[-1].child(), what)
        expressions.append((name, tree))
        types.append((name, spark_to_arrow_schema(frame.schema).field(name).type))
        used |= set(_columns(tree))
    inputs = tuple(
        (field.name, field.type)
        for field in left
        if field.name in used and field.name not in features.names
    )
    return Derived(tuple(expressions), tuple(types), inputs)


def _with(frame: DataFrame, name: str, text: str, what: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    try:
        return frame.select("*", F.expr(text).alias(name))
    except Exception as error:  # Spark's analysis errors have no common small message
        raise SchemaError(f"{what}: {str(error).strip().splitlines()[0]}") from error


def _tree(node: Any, what: str) -> Tree:
    op, type_ = kind(node), str(node.dataType().sql()).lower()
    if op == "AttributeReference":
        return {"op": "Column", "type": type_, "name": str(node.name())}
    if op == "Literal":
        return {"op": "Literal", "type": type_, "value": _literal(node, type_, what)}
    if not supports(op):
        other = replacement(node)
        if other is not None:
            return _tree(other, what)
        raise DefinitionError(
            f"{what}: {node.prettyName()} cannot be computed without Spark; {_ADVICE}"
        )
    children = [_tree(child, what) for child in _arguments(node, op)]
    if op == "Cast" and not supports_cast(children[0]["type"], type_):
        raise DefinitionError(
            f"{what}: a cast from {children[0]['type']} to {type_} cannot be computed without "
            f"Spark; {_ADVICE}"
        )
    if op in _ARITHMETIC and type_ not in NUMBERS:
        raise DefinitionError(
            f"{what}: arithmetic of {type_} cannot be computed without Spark; cast it to DOUBLE, "
            f"or {_ADVICE}"
        )
    return {"op": op, "type": type_, "args": children}


def _arguments(node: Any, op: str) -> list[Any]:
    if op == "CaseWhen":
        found = [one for pair in items(node.branches()) for one in (pair._1(), pair._2())]
        other = option(node.elseValue())
        return found if other is None else [*found, other]
    if op == "Log" and len(items(node.children())) != 1:
        return []
    return items(node.children())


def _literal(node: Any, type_: str, what: str) -> Any:
    value = node.value()
    if value is None or type_ in NUMBERS or type_ == "boolean":
        return value
    if type_.startswith("string"):
        return str(value.toString())
    raise DefinitionError(f"{what}: a literal of type {type_} is not served; {_ADVICE}")


def _columns(tree: Tree) -> list[str]:
    if tree["op"] == "Column":
        return [tree["name"]]
    return [name for arg in tree.get("args", ()) for name in _columns(arg)]
