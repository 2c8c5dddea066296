"""`/v1/features`: what is asked for is answered, value for value; what is wrong is told."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from serving_fake import FRESH, KEYS, NOW, TEN, TYPES, Fake, Troubled
from serving_worker import Serving, Start, running

from windrow.online.fetched import Description
from windrow.online.server.limits import Limits
from windrow.online.server.logs import Log


def test_features_by_column(serving: Serving) -> None:
    keys = [{"user_id": 3}, {"user_id": -1}, {"user_id": 7}, {"user_id": None}]
    wanted = ["price_avg_10d", "price_avg_1d"]
    answer = serving.post("/v1/features/activity", {"keys": keys, "features": wanted})
    assert answer == {
        "name": "activity",
        "version": "a1",
        "at": NOW,
        "features": {
            "price_avg_10d": [3 + 13 / 4, None, 7 + 13 / 4, None],
            "price_avg_1d": [6.0, None, 10.0, None],
        },
        "statuses": {name: ["present", "empty", "stale", "empty"] for name in wanted},
        "fresh_at": dict.fromkeys(wanted, FRESH),
    }
    assert list(answer["features"]) == wanted


def test_all_features_in_the_order_of_the_definition(serving: Serving) -> None:
    answer = serving.post("/v1/features/activity", {"keys": [{"user_id": 1}]})
    assert list(answer["features"]) == [name for name, _ in TEN.features]
    assert serving.post("/v1/features/activity", {"keys": []})["features"]["price_avg_1d"] == []


def test_answers_that_follow_each_other_do_not_mix(serving: Serving) -> None:
    """Statuses and times that repeat are written once; those of another request are not."""
    for user, status in [
        (1, "present"),
        (7, "stale"),
        (1, "present"),
        (-1, "empty"),
        (2, "present"),
    ]:
        answer = serving.post("/v1/features/activity", {"keys": [{"user_id": user}]})
        assert set(map(tuple, answer["statuses"].values())) == {(status,)}
        two = [{"user_id": user}, {"user_id": 7}]
        answer = serving.post("/v1/features/activity", {"keys": two, "features": ["price_avg_2d"]})
        assert answer["statuses"] == {"price_avg_2d": [status, "stale"]}


@pytest.mark.parametrize(
    ("at", "milliseconds"),
    [
        (12, 12),
        (NOW, NOW),
        ("2024-05-17T05:18:23.596Z", NOW),
        ("2024-05-17T07:18:23.596+02:00", NOW),
        ("2024-05-17T05:18:23.596", NOW),
        ("2024-05-17T05:18:23.596999Z", NOW),
        ("2024-05-17", 1_715_904_000_000),
        (None, NOW),
    ],
)
def test_times(serving: Serving, at: Any, milliseconds: int) -> None:
    body = {"keys": [{"user_id": 1}], "at": at}
    assert serving.post("/v1/features/activity", body)["at"] == milliseconds


EXPECTED = {
    "whole": [2**63 - 1, -(2**63), 2**53 + 1, 0, None],
    "real": [0.1, "NaN", "Infinity", "-Infinity", None],
    "real_or_none": [1.5, 2.5, 3.5, 4.5, 5.5],
    "flag": [True, False, None, True, False],
    "text": ["null", 'a"b\\c\n', "ünï \U0001f33e", "\x00\x1f", None],
    "raw": ["", "/wA=", "YWI=", None, "bnVsbA=="],
    "money": [
        "0.0000000000",
        "-1.5000000000",
        "1000000000000000000000000000",
        None,
        "0.1",
    ],
    "day": ["0001-01-01", "2024-02-29", "9999-12-31", None, None],
    "moment": [
        "2024-05-17T05:18:23.596000Z",
        "2024-05-17T05:18:23Z",
        "1969-12-31T21:59:59Z",
        None,
        None,
    ],
    "local": ["2024-05-17T05:00:00", None, None, None, None],
    "reals": [[1.0, None, "NaN"], [], None, ["Infinity"], [0.5]],
    "moneys": [["1.50"], [], None, [None], []],
    "counts": [{"3": 2.0, "4": "NaN"}, {}, None, {"5": 1.0}, {"-1": None}],
    "by_flag": [{"true": 1, "false": 2}, {}, None, {}, {}],
    "by_day": [{"2024-01-02": "1.10"}, {}, None, {}, {}],
    "by_text": [{"a": [1, 2]}, {}, None, {}, {}],
    "pair": [
        {"amount": "2.00", "share": "NaN"},
        {"amount": None, "share": 1.0},
        None,
        *[{"amount": None, "share": None}] * 2,
    ],
}


def test_every_type_is_expected() -> None:
    assert EXPECTED.keys() == TYPES.keys()


@pytest.mark.parametrize("feature", EXPECTED)
def test_values_of_every_type(serving: Serving, feature: str) -> None:
    keys = [{"row": row} for row in range(5)]
    for one in (feature, [feature, "flag"]):
        wanted = [one] if isinstance(one, str) else list(dict.fromkeys(one))
        answer = serving.post("/v1/features/types", {"keys": keys, "features": wanted})
        assert answer["features"][feature] == EXPECTED[feature]
    for row, value in enumerate(EXPECTED[feature]):  # by itself: not every answer has a null in it
        body = {"keys": [{"row": row}], "features": [feature]}
        assert serving.post("/v1/features/types", body)["features"][feature] == [value]


def test_keys_of_every_type(serving: Serving) -> None:
    key = {name: sent for name, (_, sent, _) in KEYS.items()}
    null = dict.fromkeys(KEYS)
    answer = serving.post("/v1/features/keys", {"keys": [key, null]})
    given = {name: value for name, (_, _, value) in KEYS.items()}
    assert answer["features"]["seen"] == [repr(given), repr(null)]


WRONG_KEYS = {
    "whole": [2**63, -(2**63) - 1, 1.5, "1", True, [1], {}],
    "small": [128, -129],
    "text": [1, ["a"], False],
    "flag": [0, "true"],
    "real": ["nan", "1.5", [1.0]],
    "raw": ["a", 1],
    "money": ["NaN", "Infinity", "1e999999999", "123456789.00", "1.005", "x", [1]],
    "day": ["2024-02-30", "2024-01-01T00:00:00", 1],
    "moment": ["yesterday", 5],
    "local": ["2024-13-01T00:00:00"],
}


@pytest.mark.parametrize(("column", "value"), [(c, v) for c, vs in WRONG_KEYS.items() for v in vs])
def test_wrong_keys_are_refused_by_place(serving: Serving, column: str, value: Any) -> None:
    good = {name: sent for name, (_, sent, _) in KEYS.items()}
    status, code, message = serving.refused(
        "/v1/features/keys", {"keys": [good, {**good, column: value}]}
    )
    assert (status, code) == (400, "bad_request")
    assert f"keys[1].{column}" in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"nonsense", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected 'object'"),
        (b"{}", "missing required field 'keys'"),
        (b'{"keys": 1}', "Expected 'array'"),
        (b'{"keys": [1]}', "keys[0]"),
        (b'{"keys": [{}]}', "missing required field 'user_id'"),
        (b'{"keys": [], "feature": ["a"]}', "unknown field 'feature'"),
        (b'{"keys": [], "features": "a"}', "features"),
        (b'{"keys": [], "at": 1.5}', "at"),
        (b'{"keys": [], "at": "noon"}', "at is not a time"),
        (b'{"keys": [], "at": 99999999999999999}', "after the year 9999"),
        (b'{"keys": [], "at": -1}', "before the time"),
        (b'{"keys": [], "features": ["price_avg_11d"]}', "did you mean 'price_avg_1"),
        (b'{"keys": [{"user_id": 1, "more": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"keys": ' + b"[" * 100_000, "keys[0]"),
        (b'{"keys": [{"user_id": 1' + b"0" * 5000 + b"}]}", "user_id"),
    ],
)
def test_wrong_bodies_are_refused(serving: Serving, body: bytes, message: str) -> None:
    status, code, said = serving.refused("/v1/features/activity", body)
    assert (status, code) == (400, "bad_request")
    assert message in said


def test_unknown_paths_names_and_methods(serving: Serving) -> None:
    assert serving.refused("/v1/features/nothing", {"keys": []})[:2] == (404, "not_found")
    assert serving.refused("/v1/features/", {"keys": []})[:2] == (404, "not_found")
    assert serving.refused("/v1/features/a%2Fb%00", method="GET")[:2] == (404, "not_found")
    assert serving.refused("/v1/feature", method="GET")[:2] == (404, "not_found")
    assert serving.refused("/v1/features", {})[:2] == (405, "method_not_allowed")
    assert serving.refused("/v1/features/activity", method="PUT")[0] == 405
    _, headers, _ = serving.request("DELETE", "/v1/features/activity")
    assert headers["allow"] == "GET, HEAD, POST"


def test_more_than_is_allowed_is_refused(start: Start) -> None:
    serving = start(limits=Limits(body=2000, keys=20))
    path = "/v1/features/activity"
    assert serving.refused(path, {"keys": [{"user_id": 1}] * 21})[:2] == (413, "too_large")
    assert serving.refused(path, b" " * 2001)[:2] == (413, "too_large")
    assert serving.refused(path, b" " * 500_000)[:2] == (413, "too_large")
    assert serving.post(path, {"keys": [{"user_id": 1}] * 20})["at"] == NOW
    body = {"entities": {"user_id": [1] * 21}, "features": ["activity:price_avg_1d"]}
    assert serving.refused("/get-online-features", body)[:2] == (413, "too_large")


def test_many_keys_are_fetched_in_a_thread(serving: Serving) -> None:
    keys = [{"user_id": number} for number in range(1000)]
    answer = serving.post("/v1/features/activity", {"keys": keys, "features": ["price_avg_1d"]})
    assert answer["features"]["price_avg_1d"] == [number + 3 for number in range(1000)]


def test_descriptions(serving: Serving) -> None:
    names = serving.get("/v1/features")["names"]
    assert names == ["activity", "keys", "training", "types"]
    assert serving.get("/v1/features/training") == {
        "name": "training",
        "version": "j1",
        "keys": [{"name": "user_id", "type": "int64"}, {"name": "listing", "type": "string"}],
        "inputs": [{"name": "price", "type": "double"}],
        "features": [
            {"name": "views", "type": "int64", "group": "activity"},
            {"name": "stars", "type": "double", "group": "reputation"},
            {"name": "against_usual", "type": "double"},
        ],
        "max_staleness": None,
    }


def test_inputs_have_to_be_given(serving: Serving) -> None:
    key = {"user_id": 1, "listing": "rake", "price": 2.5}
    answer = serving.post("/v1/features/training", {"keys": [key]})
    assert answer["features"] == {"views": [1], "stars": [2.0], "against_usual": [2.5]}
    del key["price"]
    assert "price" in serving.refused("/v1/features/training", {"keys": [key]})[2]


def test_a_changed_definition_is_noticed(start: Start) -> None:
    """By its version at once; by its description within a second."""
    served = Fake()
    serving = start(served)
    body = {"keys": [{"user_id": 1}]}
    assert serving.post("/v1/features/activity", body)["version"] == "a1"
    served.served["activity"] = Description(
        "activity",
        keys=TEN.keys,
        features=(("money", pa.decimal128(10, 2)), ("price_avg_1d", pa.float64())),
        version="a2",
    )
    body["features"] = ["price_avg_1d"]  # type: ignore[assignment]
    assert serving.post("/v1/features/activity", body)["version"] == "a2"
    assert len(serving.get("/v1/features/activity")["features"]) == 2
    del served.served["activity"]
    serving.app._catalogue.forget("activity")
    assert serving.refused("/v1/features/activity", body)[0] == 404


def test_what_fails_inside_shows_nothing(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    serving = start(Troubled())
    path = "/v1/features/activity"
    status, _, body = serving.request("POST", path, {"keys": [{"user_id": 1}], "at": 2})
    assert status == 500
    assert b"secret" not in body
    error = json.loads(body)["error"]
    status, headers, unreachable = serving.request("POST", path, {"keys": [], "at": 1})
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"secret-host" not in unreachable
    assert serving.refused(path, {"keys": [], "at": 3})[:2] == (503, "stale")
    status, code, message = serving.refused("/v1/features/secret", {"keys": []})
    assert (status, code) == (404, "not_found")
    assert "activity" not in message  # nor where the store is, which the error may say
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (logged,) = [line for line in lines if line.get("id") == error["id"]]
    assert "secret of the inside" in logged["trace"]


def test_requests_are_logged_if_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with running(Fake(), log=Log(requests=True)) as serving:
        serving.headers = {"authorization": "Bearer sesame-sesame-sesame"}
        serving.post("/v1/features/activity", {"keys": [{"user_id": 424242}]})
        serving.refused("/v1/features/nothing", {"keys": []})
    text = capfd.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("features", 200),
        ("features", 404),
    ]
    assert "sesame" not in text
    assert "424242" not in text


def test_requests_are_not_logged_otherwise(
    serving: Serving, capfd: pytest.CaptureFixture[str]
) -> None:
    serving.post("/v1/features/activity", {"keys": [{"user_id": 1}]})
    assert capfd.readouterr().err == ""
