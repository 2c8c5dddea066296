"""Feast's protocol, message by message; `test_feast_client.py` has Feast's own client ask."""

from __future__ import annotations

from typing import Any

import pytest
from serving_worker import Serving

PATH = "/get-online-features"
EPOCH = "1970-01-01T00:00:00Z"
FRESH = "2024-05-17T05:18:22.096Z"


def test_features_of_two_views(serving: Serving) -> None:
    body = {
        "entities": {"user_id": [3, -1, 7], "listing": ["ab", "", "abc"], "price": [1.5, "NaN", 2]},
        "features": ["training:stars", "activity:price_avg_1d", "training:views"],
        "include_feature_view_version_metadata": False,
    }
    assert serving.post(PATH, body) == {
        "metadata": {
            "feature_names": ["user_id", "listing", "price", "stars", "price_avg_1d", "views"]
        },
        "results": [
            {
                "values": values,
                "statuses": ["PRESENT"] * 3,
                "event_timestamps": [EPOCH] * 3,
            }
            for values in body["entities"].values()  # type: ignore[attr-defined]
        ]
        + [
            {
                "values": values,
                "statuses": ["PRESENT", empty, "OUTSIDE_MAX_AGE"],
                "event_timestamps": [FRESH] * 3,
            }
            for values, empty in [
                ([1.0, None, 1.5], "NULL_VALUE"),
                ([6.0, None, 10.0], "NULL_VALUE"),
                ([3, 0, 7], "PRESENT"),  # a count of nothing is a value
            ]
        ],
        "status": True,
    }


def test_a_feature_service_has_all_features(serving: Serving) -> None:
    entities = {"user_id": [1], "listing": ["a"], "price": [2.5]}
    answer = serving.post(PATH, {"entities": entities, "feature_service": "training"})
    names = ["user_id", "listing", "price", "views", "stars", "against_usual"]
    assert answer["metadata"]["feature_names"] == names
    assert answer["results"][-1]["values"] == [2.5]


def test_full_names(serving: Serving) -> None:
    body = {"entities": {"user_id": [1]}, "features": ["activity:price_avg_1d"]}
    answer = serving.post(PATH, {**body, "full_feature_names": True})
    assert answer["metadata"]["feature_names"] == ["user_id", "activity__price_avg_1d"]


EXPECTED = {
    "whole": [2**63 - 1, -(2**63), 2**53 + 1, 0, None],
    "real": [0.1, "NaN", "Infinity", "-Infinity", None],
    "raw": ["", "/wA=", "YWI=", None, "bnVsbA=="],
    "moment": [1_715_923_103, 1_715_923_103, -7201, None, None],
    "reals": [[1.0, None, "NaN"], [], None, ["Infinity"], [0.5]],
    "counts": [{"3": 2.0, "4": "NaN"}, {}, None, {"5": 1.0}, {"-1": None}],
    "flag": [True, False, None, True, False],
}


@pytest.mark.parametrize("feature", EXPECTED)
def test_values(serving: Serving, feature: str) -> None:
    body = {"entities": {"row": [0, 1, 2, 3, 4]}, "features": [f"types:{feature}"]}
    column = serving.post(PATH, body)["results"][1]
    assert column["values"] == EXPECTED[feature]
    expected = ["NULL_VALUE" if value is None else "PRESENT" for value in EXPECTED[feature]]
    assert column["statuses"] == expected


def test_timestamps_as_keys_are_seconds(serving: Serving) -> None:
    key: dict[str, Any] = {"whole": 1, "small": 1, "text": "", "flag": True, "real": 1, "raw": ""}
    key |= {"money": "1.5", "day": "2024-01-01", "moment": 1_715_923_103, "local": 0}
    body = {"entities": {k: [v] for k, v in key.items()}, "features": ["keys:seen"]}
    seen = serving.post(PATH, body)["results"][-1]["values"][0]
    assert "'moment': datetime.datetime(2024, 5, 17, 5, 18, 23, tzinfo=" in seen
    assert "'local': datetime.datetime(1970, 1, 1, 0, 0)" in seen


ONE = {"user_id": [1]}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"entities": ONE, "features": ["nothing:x"]}, 404, "nothing is served"),
        ({"entities": ONE, "features": ["activity:x"]}, 404, "no feature 'x'"),
        ({"entities": ONE, "feature_service": "nothing"}, 404, "nothing is served"),
        ({"entities": ONE, "features": ["price_avg_1d"]}, 400, "view:feature"),
        ({"entities": ONE, "features": []}, 400, "give features"),
        ({"entities": ONE}, 400, "give features"),
        ({"entities": {}, "features": ["activity:price_avg_1d"]}, 400, "entities"),
        ({"features": ["activity:price_avg_1d"]}, 400, "entities"),
        ({"entities": {"user": [1]}, "features": ["activity:price_avg_1d"]}, 400, "'user_id'"),
        ({"entities": {"user_id": ["1"]}, "features": ["activity:price_avg_1d"]}, 400, "user_id"),
        ({"entities": {"user_id": [[1]]}, "features": ["activity:price_avg_1d"]}, 400, "entities"),
        (
            {"entities": {"user_id": [1], "b": []}, "features": ["activity:price_avg_1d"]},
            400,
            "one length",
        ),
        ({"entities": ONE, "features": ["activity:price_avg_1d"] * 2}, 400, "one name"),
        (
            {"entities": ONE, "features": ["activity:a"], "feature_service": "activity"},
            400,
            "not both",
        ),
        (b'{"entities": {"user_id": ' + b"[" * 50_000, 400, "entities"),
        (b'{"more": ' + b"[" * 50_000, 400, "nested too deeply"),
        (b"[]", 400, "Expected 'object'"),
    ],
)
def test_refusals(serving: Serving, body: Any, status: int, message: str) -> None:
    found, _, said = serving.refused(PATH, body)
    assert found == status
    assert message in said
