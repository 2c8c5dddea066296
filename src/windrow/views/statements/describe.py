"""What SHOW and DESCRIBE answer: the definitions of a project as rows, and as SQL again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windrow.spark.plans import active
from windrow.spark.schemas import quoted
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.online import online_text
from windrow.views.relations.relations import Relations
from windrow.views.times import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RAW_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps CHAR(n) and VARCHAR(n)


def texts(relations: Relations, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A small result of texts and booleans."""
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    found = [tuple(row) for row in rows]
    fields = []
    for i, name in enumerate(columns):
        boolean = bool(found) and isinstance(found[0][i], bool)
        fields.append(StructField(name, BooleanType() if boolean else StringType()))
    session = relations.session
    with active(session):
        return session.createDataFrame(found, StructType(fields))


def show_tables(relations: Relations, pattern: str | None) -> DataFrame:
    rows = [
        (one.name, one.kind, one.definition.get("comment"))
        for one in relations.known()
        if matches(one.name, pattern)
    ]
    return texts(relations, ("name", "kind", "comment"), rows)


def show_views(relations: Relations, pattern: str | None) -> DataFrame:
    rows = [
        (one.name, str(one.definition.get("sql") or ""), one.definition.get("comment"))
        for one in relations.known("view")
        if matches(one.name, pattern)
    ]
    return texts(relations, ("name", "sql", "comment"), rows)


def matches(name: str, pattern: str | None) -> bool:
    """Spark's patterns of SHOW: `*` for anything, `|` between several; without case.

    >>> matches("sales", "s*|t*"), matches("sales", "*x")
    (True, False)
    """
    if pattern is None:
        return True
    for one in pattern.strip().split("|"):
        if re.fullmatch(one.strip().replace("*", ".*"), name, re.IGNORECASE):
            return True
    return False


def show_columns(relations: Relations, name: str) -> DataFrame:
    schema = relations.find(name).schema
    return texts(relations, ("col_name",), [(field,) for field in schema.names])


def described(
    relations: Relations, schema: StructType, more: Iterable[tuple[str, str]] = ()
) -> DataFrame:
    """Columns and their types, as rows; and more below."""
    rows = [(f.name, type_of(f), f.metadata.get("comment")) for f in schema]
    details = [(key, value, None) for key, value in more]
    if details:
        rows += [("", "", None), ("# Detailed information", "", None), *details]
    return texts(relations, ("col_name", "data_type", "comment"), rows)


def describe(relations: Relations, history: History, name: str, extended: bool) -> DataFrame:
    relation = relations.find(name)
    more = _details(relations, history, relation) if extended else ()
    return described(relations, relation.schema, more)


def _details(relations: Relations, history: History, relation: Relation) -> list[tuple[str, str]]:
    definition = relation.definition
    collection = history.collection(relation.collection)
    found = [("Name", relation.name), ("Kind", relation.kind)]
    if definition.get("comment"):
        found.append(("Comment", str(definition["comment"])))
    if definition.get("key"):
        found.append(("Primary key", ", ".join(definition["key"])))
    served_by = online_text(definition.get("properties"))
    if served_by is not None:
        found.append(("Served by", served_by))
    if relation.is_append_only:
        found.append(("Append-only", "true"))
    for column, default in (definition.get("defaults") or {}).items():
        found.append((f"Default of {column}", default))
    if relation.kind == "source":
        found += _source_details(definition)
    if relation.kind == "view":
        found.append(("Query", str(definition.get("sql") or "")))
        found.append(("Inputs", ", ".join(relations.inputs_of(relation))))
        found.append(("Up to date at", shown(history.ticked)))
    users = relations.users_of(relation.name)
    if users:
        found.append(("Used by", ", ".join(users)))
    found.append(("Readable from", shown(collection.since)))
    found.append(("Updates stored", f"{sum(part.rows for part in collection.parts):,}"))
    found.append(("Parts", f"{len(collection.parts):,}"))
    found.append(("Stored in", collection.store.uri))
    return found


def _source_details(definition: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the rows of a source are, table by table."""
    found: list[tuple[str, str]] = []
    if "source" in definition:
        found.append(("Defined as", python_text(definition)))
    for role, table in definition["tables"].items():
        of = "" if role == "table" else f" of {role}"
        found.append((f"Format{of}", str(table["format"])))
        found.append((f"Location{of}", _location(table)))
        for option, value in table["options"].items():
            found.append((f"Option {option}{of}", value))
        if role in ("shard", "stream"):
            found.append(("Read up to", str(table.get("upper", 0))))
        else:
            found.append((f"Files{of}", f"{len(table['files']):,}"))
        if "version" in table:
            found.append((f"Version{of}", str(table["version"])))
        if "day" in table:
            found.append(("Day", str(table["day"])))
    if definition.get("quarantined"):
        found.append(("Changes in quarantine", f"{definition['quarantined']:,}"))
    return found


def _location(table: Mapping[str, Any]) -> str:
    pattern = table.get("pattern")
    return str(table["location"]) if pattern is None else f"{table['location']}/{pattern}"


def python_text(definition: Mapping[str, Any]) -> str:
    """The definition of a source in Python."""
    source = dict(definition["source"])
    kind, select = source.pop("type"), source.pop("select", None)
    tables = definition["tables"]
    given = {**source, **{n: _location(one) for n, one in tables.items() if n != "stream"}}
    if select is not None:
        given["select"] = dict(select)
    texts = [f"{name}={value!r}" for name, value in given.items()]
    if "stream" in tables:  # options may have secrets, so it is not kept
        texts.append("stream=...")
    return f"{kind}({', '.join(texts)})"


def type_of(field: Any) -> str:
    """The type of a column as it was declared."""
    return str(field.metadata.get(_RAW_TYPE) or field.dataType.simpleString())


def _declared(field: Any) -> str:
    """The type of a column as a statement declares it."""
    raw = field.metadata.get(_RAW_TYPE)
    return str(raw).upper() if raw else sql_type(field.dataType)


def sql_type(type_: Any) -> str:
    """A type of Spark in SQL; fields keep their names as they are."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        fields = [
            f"{sql_name(f.name)}: {sql_type(f.dataType)}{'' if f.nullable else ' NOT NULL'}"
            for f in type_
        ]
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(type_, ArrayType):
        return f"ARRAY<{sql_type(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"MAP<{sql_type(type_.keyType)}, {sql_type(type_.valueType)}>"
    return str(type_.simpleString()).upper()


def create_text(relation: Relation) -> str:
    """The statement that creates a relation."""
    definition = relation.definition
    name = sql_name(relation.name)
    comment = definition.get("comment")
    tail = f"\nCOMMENT {sql_text(comment)}" if comment else ""
    if definition.get("properties"):
        given = definition["properties"].items()
        pairs = ", ".join(f"{sql_text(key)} = {sql_text(value)}" for key, value in given)
        tail += f"\nTBLPROPERTIES ({pairs})"
    if relation.kind == "view":
        return f"CREATE MATERIALIZED VIEW {name}{tail} AS\n{definition.get('sql') or '...'}"
    if not _is_sql(definition):
        return f"-- in Python: project.source({relation.name!r}, {python_text(definition)})"
    defaults = definition.get("defaults") or {}
    lines = []
    for field in relation.schema:
        line = f"  {sql_name(field.name)} {_declared(field)}"
        line += "" if field.nullable else " NOT NULL"
        line += f" DEFAULT {defaults[field.name]}" if field.name in defaults else ""
        note = field.metadata.get("comment")
        lines.append(line + (f" COMMENT {sql_text(note)}" if note else ""))
    if definition.get("key"):
        lines.append(f"  PRIMARY KEY ({', '.join(map(sql_name, definition['key']))})")
    return f"CREATE TABLE {name} (\n" + ",\n".join(lines) + f"\n){_files_text(relation)}{tail}"


def _is_sql(definition: Mapping[str, Any]) -> bool:
    """Whether a statement can say what a relation is: not, if its definition has options."""
    source = definition.get("source")
    if source is None:
        return True
    plain = source["type"] == "EventSource" and set(source) <= {"type", "name", "time"}
    return plain and "pattern" not in definition["tables"]["table"]


def _files_text(relation: Relation) -> str:
    """Where the rows of a source are."""
    definition = relation.definition
    if relation.kind != "source":
        return ""
    table = definition["tables"]["table"]
    given = [f"{sql_text(name)} = {sql_text(v)}" for name, v in table["options"].items()]
    options = f"\nOPTIONS ({', '.join(given)})" if given else ""
    return f"\nUSING {table['format']}{options}\nLOCATION {sql_text(table['location'])}"


def sql_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def sql_text(text: str) -> str:
    """A string literal of Spark SQL.

    >>> print(sql_text("it's"))
    'it\\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
