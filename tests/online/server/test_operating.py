"""Health, metrics, tokens, the OpenAPI document and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving_fake import FRESH, Fake, Waiting
from serving_worker import Serving, Start

from windrow.errors import OptionError
from windrow.online.server import page
from windrow.online.server.limits import Limits
from windrow.online.server.metrics import Tallies
from windrow.online.server.tokens import VARIABLE, Tokens

TOKEN, OTHER = "correct-horse-battery", "staple-of-another-kind"
ASK = {"keys": [{"user_id": 1}]}


# Health


def test_health(start: Start) -> None:
    served = Fake()
    serving = start(served)
    assert serving.get("/health/live") == {"status": "live"}
    assert serving.get("/health/ready") == serving.get("/health") == {"status": "ready"}
    assert serving.request("HEAD", "/health")[0::2] == (200, b"")
    served.served.clear()
    assert serving.refused("/health/ready", method="GET")[:2] == (503, "not_ready")
    serving.app.closing = True
    assert serving.refused("/health", method="GET")[:2] == (503, "not_ready")
    assert serving.get("/health/live") == {"status": "live"}


# Metrics


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """By name and the values of labels; the end of a bucket is the last of them."""
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            labels = sorted(one.labels.items(), key=lambda label: label[0] == "le")
            found[one.name, *(value for _, value in labels)] = one.value
    return found


def test_metrics(start: Start) -> None:
    serving = start()
    for _ in range(3):
        serving.post("/v1/features/activity", {"keys": [{"user_id": 1}] * 4})
    serving.refused("/v1/features/nothing", ASK)
    serving.refused("/v1/features/activity", b"{")
    _, headers, text = serving.request("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain")
    found = samples(text)
    assert found["windrow_requests_total", "features", "200"] == 3
    assert found["windrow_requests_total", "features", "404"] == 1
    assert found["windrow_fetches_total", "activity"] == 3
    assert found["windrow_keys_total", "activity"] == 12
    assert found["windrow_errors_total", "not_found"] == 1
    assert found["windrow_errors_total", "bad_request"] == 1
    assert found["windrow_request_seconds_count", "features"] == 5
    assert found["windrow_request_seconds_bucket", "features", "+Inf"] == 5
    assert found["windrow_fresh_at_seconds", "activity"] == FRESH / 1000
    assert found["windrow_worker_memory_bytes", "0"] > 1e6
    assert "nothing" not in str(found)  # names of clients' choice are no labels


def test_metrics_of_several_workers_are_added_up(tmp_path: Path) -> None:
    one, two = Tallies(0, tmp_path), Tallies(1, tmp_path)
    one.request("features", 200, 0.0002)
    two.request("features", 200, 3.0)
    two.request("feast", 400, 100.0)
    one.fetched("activity", 2, [5000, 3000])
    two.fetched("activity", 1, [4000])
    two.publish()
    found = samples(one.text())
    assert found["windrow_requests_total", "features", "200"] == 2
    assert found["windrow_request_seconds_bucket", "features", "0.00025"] == 1
    assert found["windrow_request_seconds_bucket", "features", "5.0"] == 2
    assert found["windrow_request_seconds_bucket", "feast", "10.0"] == 0
    assert found["windrow_request_seconds_bucket", "feast", "+Inf"] == 1
    assert found["windrow_request_seconds_sum", "features"] == pytest.approx(3.0002)
    assert found["windrow_fresh_at_seconds", "activity"] == 4
    anew = Tallies(1, tmp_path)  # a worker that was started again
    anew.request("features", 200, 0.1)
    assert samples(anew.text())["windrow_requests_total", "features", "200"] == 3


# Tokens


@pytest.fixture
def guarded(start: Start, tmp_path: Path) -> Serving:
    file = tmp_path / "tokens"
    file.write_text(f"# who\n{TOKEN}\n\n{OTHER}\n")
    return start(tokens=Tokens.find(str(file), {}))


PATHS = [
    *(("GET", path) for path in ("/", "/docs", "/openapi.json", "/metrics", "/health", "/x")),
    *(("GET", path) for path in ("/health/ready", "/v1/features", "/v1/features/activity")),
    *(
        ("POST", path)
        for path in ("/v1/features/activity", "/get-online-features", "/health/live/")
    ),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN} {OTHER}",
    ],
)
def test_nothing_without_a_token(
    guarded: Serving, method: str, path: str, header: str | None
) -> None:
    headers = {} if header is None else {"authorization": header}
    status, said, body = guarded.request(method, path, ASK, **headers)
    assert status == 401
    assert said["www-authenticate"] == "Bearer"
    assert json.loads(body)["error"]["code"] == "unauthorized"
    assert b"activity" not in body


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_every_token_is_accepted(guarded: Serving, token: str) -> None:
    assert guarded.get("/health/live") == {"status": "live"}
    guarded.headers = {"Authorization": f"bearer {token}"}
    assert guarded.post("/v1/features/activity", ASK)["version"] == "a1"
    assert guarded.request("GET", "/")[0] == 200
    assert guarded.get("/openapi.json")["security"] == [{"token": []}]


def test_tokens_change_while_it_runs(
    guarded: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = guarded.app.tokens
    (tmp_path / "tokens").write_text("a-token-that-is-new\n")
    tokens.refresh()
    guarded.headers = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.refused("/v1/features/activity", ASK)[0] == 401
    guarded.headers = {"authorization": "Bearer a-token-that-is-new"}
    assert guarded.post("/v1/features/activity", ASK)["version"] == "a1"
    (tmp_path / "tokens").write_text("\n")
    with pytest.raises(OptionError, match="holds no token"):
        tokens.refresh()
    assert guarded.post("/v1/features/activity", ASK)["version"] == "a1"  # never open to all
    assert "a-token" not in capfd.readouterr().err


def test_tokens_of_the_environment() -> None:
    tokens = Tokens.find(None, {VARIABLE: f"{TOKEN}, {OTHER}"})
    for token in (TOKEN, OTHER):
        assert tokens.accept([(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())])
    assert not tokens.accept([(b"authorization", b"Bearer \xff")])
    assert not tokens.accept([])
    assert not Tokens.find(None, {})


@pytest.mark.parametrize("given", ["", " ", "sesame", "with-ümlaut-in-its-middle"])
def test_bad_tokens_are_refused_and_not_shown(given: str) -> None:
    with pytest.raises(OptionError) as error:
        Tokens.find(None, {VARIABLE: given})
    assert given.strip() == "" or given not in str(error.value)


def test_a_missing_token_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        Tokens.find(str(tmp_path / "none"), {})


# The document and the page


def test_the_document_says_what_there_is(serving: Serving) -> None:
    document = serving.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    key = document["paths"]["/v1/features/training"]["post"]["requestBody"]["content"]
    schema = key["application/json"]["schema"]["properties"]["keys"]["items"]
    assert schema["required"] == ["user_id", "listing", "price"]
    for path in document["paths"]:
        if "{" not in path and "post" not in document["paths"][path]:
            assert serving.request("GET", path)[0] == 200


def test_every_reference_of_the_document_is_there(serving: Serving) -> None:
    document = serving.get("/openapi.json")
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert name in document["components"]["schemas"]


def test_answers_are_as_the_document_says(serving: Serving) -> None:
    import jsonschema

    document = serving.get("/openapi.json")
    post = document["paths"]["/v1/features/types"]["post"]
    schema = post["responses"]["200"]["content"]["application/json"]["schema"]
    answer = serving.post("/v1/features/types", {"keys": [{"row": row} for row in range(5)]})
    whole: dict[str, Any] = {**schema, "components": document["components"]}
    jsonschema.validate(answer, whole)


def test_the_page_loads_nothing_from_elsewhere(serving: Serving) -> None:
    for path in ("/", "/docs"):
        status, headers, body = serving.request("GET", path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert body == page.CONTENT
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["content-security-policy"].count("sha256-") == 2
        assert not re.search(rb"https?://|//\w|@import|url\(|\bstyle=|\bon\w+=", body)
        assert b"prefers-color-scheme: dark" in body


# A store on another machine


def test_a_store_that_is_slow_delays_nobody_else(start: Start) -> None:
    served = Waiting()
    serving = start(served, Limits(timeout=0.2, threads=2, waiting=1))
    path = "/v1/features/activity"
    serving.post(path, {"keys": [{"user_id": 0}]})  # its description is known now
    slow = serving.connect()
    body = b'{"keys":[{"user_id":2000}]}'
    head = b"POST /v1/features/activity HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    slow.sendall(head % len(body) + body)
    assert served.waiting.wait(60)
    assert serving.post(path, {"keys": [{"user_id": 0}]})["at"] > 0  # meanwhile
    assert b" 504 " in slow.recv(4096)
    others = [serving.connect() for _ in range(4)]
    for one in others:
        one.sendall(head % len(body) + body)
    answers = sorted(one.recv(4096).split(b" ")[1] for one in others)
    assert answers[0] == b"503"  # two threads, one of them busy, and one that may wait
    assert answers[-1] == b"504"
    for one in (slow, *others):
        one.close()
