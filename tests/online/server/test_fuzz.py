"""Requests that schemathesis makes up from the server's own OpenAPI document.

No answer is a 5xx, none is other than the document says, and none shows the inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
)
from serving_fake import Fake
from serving_worker import Serving, running

from windrow.online.server.catalogue import Entry
from windrow.online.server.openapi import document

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
BOUNDED = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Serving]:
    with running(Fake()) as serving:
        yield serving


def operations() -> list[str]:
    """Those of the document, by method and path."""
    entries = [Entry(description) for description in Fake().served.values()]
    paths = json.loads(document(entries, secured=False))["paths"]
    methods = ("get", "post")
    return [f"{m.upper()} {path}" for path, one in paths.items() for m in methods if m in one]


@pytest.mark.parametrize("operation", operations())
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_what_the_document_allows_and_what_it_does_not(
    fuzzed: Serving, operation: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{fuzzed.port}/openapi.json")
    method, path = operation.split(" ", 1)

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(BOUNDED, max_examples=min(30, settings().max_examples))
    def ask(case: schemathesis.Case) -> None:
        response = case.call()
        case.validate_response(response, checks=CHECKS)
        assert "Traceback" not in response.text

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing can be wrong in it


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["keys", "at", "features", "entities", "feature_service", "user_id", "x"])


@given(
    path=st.sampled_from(["/v1/features/activity", "/v1/features/keys", "/get-online-features"]),
    body=st.dictionaries(names, json_values | st.dictionaries(names, json_values, max_size=3)),
)
@BOUNDED
def test_any_json(fuzzed: Serving, path: str, body: object) -> None:
    status, _, answer = fuzzed.request("POST", path, body)
    assert status in (200, 400, 404)
    assert b"Traceback" not in answer


@given(body=st.binary(max_size=200))
@BOUNDED
def test_any_bytes(fuzzed: Serving, body: bytes) -> None:
    for path in ("/v1/features/activity", "/get-online-features"):
        assert fuzzed.request("POST", path, body)[0] == 400


@given(user=st.integers(-(2**63), 2**63 - 1) | st.none())
@BOUNDED
def test_never_another_keys_data(fuzzed: Serving, user: int | None) -> None:
    listing = "x" * ((user or 0) % 7)
    key = {"user_id": user, "listing": listing, "price": 1.0}
    answer = fuzzed.post("/v1/features/training", {"keys": [key], "features": ["views"]})
    expected = 0 if user is None or user < 0 else user
    assert answer["features"]["views"] == [expected]
