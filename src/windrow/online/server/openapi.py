"""The OpenAPI document: what every server has, and a path for each name with its own types."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa

from windrow.online.server import feast
from windrow.online.server.answers import Answer
from windrow.online.server.catalogue import Entry
from windrow.online.server.describing import Listed, Shown
from windrow.online.server.key_types import accepted
from windrow.online.server.refusals import Problems

Json = dict[str, Any]

_COMPONENTS = "#/components/schemas/"
_FLOAT = {
    "anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]
}
_AT = {
    "description": "The time for which features are asked, by default now: ISO 8601 (UTC unless it "
    "says otherwise), or milliseconds since 1970.",
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "integer", "minimum": -62135596800000, "maximum": 253402300799999},
        {"type": "null"},
    ],
}


def document(entries: Iterable[Entry], *, secured: bool) -> bytes:
    """As JSON. `secured` says that a token is asked for."""
    models = [Answer, Listed, Shown, Problems, feast.Question, feast.Reply]
    _, schemas = msgspec.json.schema_components(models, ref_template=_COMPONENTS + "{name}")
    paths = _paths()
    for entry in entries:
        path, item = _path_of(entry)
        paths[path] = item
    found: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Windrow",
            "version": version("windrow"),
            "description": "Features of keys, as of now or of a given time.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if secured:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        found["paths"]["/health/live"]["get"]["security"] = []
    return msgspec.json.encode(found)


def _paths() -> Json:
    """Those that do not depend on what is served."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
    any_key = {"type": "object", "additionalProperties": True}
    return {
        "/v1/features": {"get": _operation("The names that can be fetched", _ref(Listed))},
        "/v1/features/{name}": {
            "parameters": [name],
            "get": _operation("Keys and features of one name, with their types", _ref(Shown)),
            "post": _operation("Features of keys", _ref(Answer), _body(any_key, None)),
        },
        "/get-online-features": {
            "post": _operation("Feast's protocol", _ref(feast.Reply), _ref(feast.Question))
        },
        "/health": {"get": _operation("The same as /health/ready", {"type": "object"})},
        "/health/live": {"get": _operation("The process answers", {"type": "object"})},
        "/health/ready": {"get": _operation("Features can be fetched", {"type": "object"})},
        "/metrics": {
            "get": _operation("Metrics for Prometheus", {"type": "string"}, kind="text/plain")
        },
        "/openapi.json": {"get": _operation("This document", {"type": "object"})},
    }


def _path_of(entry: Entry) -> tuple[str, Json]:
    description = entry.description
    given = (*description.keys, *description.inputs)
    key = {
        "type": "object",
        "properties": {name: key_schema(type) for name, type in given},
        "required": [name for name, _ in given],
    }
    features = {
        name: {"type": "array", "items": value_schema(type)} for name, type in description.features
    }
    answer = {
        "allOf": [
            _ref(Answer),
            {
                "type": "object",
                "properties": {"features": {"type": "object", "properties": features}},
            },
        ]
    }
    names = [name for name, _ in description.features]
    summary = f"Features of {description.name}"
    return f"/v1/features/{quote(description.name, safe='')}", {
        "post": _operation(summary, answer, _body(key, names))
    }


def _body(key: Json, features: list[str] | None) -> Json:
    name: Json = {"type": "string"} if features is None else {"enum": features}
    return {
        "type": "object",
        "properties": {
            "keys": {"type": "array", "items": key},
            "at": _AT,
            "features": {
                "description": "The features that are wanted, by default all.",
                "anyOf": [{"type": "array", "items": name}, {"type": "null"}],
            },
        },
        "required": ["keys"],
        "additionalProperties": False,
    }


def _operation(
    summary: str, answer: Json, body: Json | None = None, kind: str = "application/json"
) -> Json:
    found: Json = {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": {kind: {"schema": answer}}},
            "default": {
                "description": "A refusal; its code and message say why.",
                "content": {"application/json": {"schema": _ref(Problems)}},
            },
        },
    }
    if body is not None:
        content = {"application/json": {"schema": body}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _ref(model: type) -> Json:
    return {"$ref": f"{_COMPONENTS}{model.__name__}"}


def key_schema(type: pa.DataType) -> Json:
    """The schema of what a request gives for a column."""
    schema: Json = msgspec.json.schema(accepted(type))
    return schema


def value_schema(type: pa.DataType) -> Json:
    """The schema of what an answer has for a feature; null is always possible."""
    return {"anyOf": [_present(type), {"type": "null"}]}


def _present(type: pa.DataType) -> Json:
    if pa.types.is_integer(type):
        return {"type": "integer"}
    if pa.types.is_boolean(type):
        return {"type": "boolean"}
    if pa.types.is_floating(type):
        return dict(_FLOAT)
    if pa.types.is_date(type):
        return {"type": "string", "format": "date"}
    if pa.types.is_timestamp(type):
        return {"type": "string", **({"format": "date-time"} if type.tz else {})}
    if pa.types.is_binary(type) or pa.types.is_large_binary(type):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_dictionary(type):
        return _present(type.value_type)
    if pa.types.is_map(type):
        return {"type": "object", "additionalProperties": value_schema(type.item_type)}
    if pa.types.is_struct(type):
        fields = {field.name: value_schema(field.type) for field in type.fields}
        return {"type": "object", "properties": fields}
    if isinstance(type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return {"type": "array", "items": value_schema(type.value_type)}
    return {"type": "string"}
