"""What paths and URIs mean, and what others are told of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import OptionError
from windrow.storage.store import Store
from windrow.storage.uris import for_delta, from_spark, place_of

NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=30)


@given(NAMES)
def test_a_path_is_taken_at_its_word(name: str) -> None:
    path = os.path.abspath(f"/data/{name}/x")
    assert place_of(path) == path
    assert Store.at(path).is_local
    assert place_of(f"file://{quote(path)}") == path
    assert place_of(f"file:{quote(path)}") == path
    assert from_spark(f"file:{quote(path)}") == path
    store, file = Store.of_file(f"{path}/{name}.parquet")
    assert f"{store.uri}/{file}" == os.path.abspath(f"{path}/{name}.parquet")


@given(NAMES)
def test_so_is_a_key_in_an_object_store(name: str) -> None:
    uri = f"s3://bucket/{name}/x"
    assert place_of(uri) == uri
    assert not Store.at(uri).is_local
    assert from_spark(f"s3a://bucket/{quote(name)}/x") == f"s3a://bucket/{name}/x"


@pytest.mark.parametrize("name", ["data:2024/x", "s3:", "a:b", "file:x", "c:/x", "~", "http:x/y"])
def test_a_name_with_a_colon_is_a_name(name: str) -> None:
    assert place_of(name) == os.path.abspath(name)
    assert place_of(Path(name)) == os.path.abspath(name)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        None,
        3,
        b"/data",
        "a\0b",
        "s3://bucket/a\0b",
        "/data/\udc80",  # a byte that is not UTF-8, as Python writes it
        "file:///data/%80",
        "file://host/data",
        "file:///data/a?b",
        "file:///data/a#b",
        "s3://",
        "s3:///key",
    ],
)
def test_what_names_no_place_is_refused(uri: Any) -> None:
    with pytest.raises(OptionError):
        place_of(uri)


@pytest.mark.parametrize("name", ["a%20b", "%2F", "100%25", "a\nb", "\t", "\x7f", "\x01"])
@pytest.mark.parametrize("folder", ["/data", "s3://bucket"])
def test_places_that_delta_takes_for_others_are_refused(folder: str, name: str) -> None:
    with pytest.raises(OptionError, match="choose another name"):
        for_delta(f"{folder}/{name}/table")


@pytest.mark.parametrize("key", ["a//b", "./a", "a/..", "a/./b", "."])
def test_keys_that_are_not_paths_are_refused(key: str) -> None:
    with pytest.raises(OptionError):
        for_delta(f"s3://bucket/{key}")


def test_a_backslash_is_a_character_of_keys_only() -> None:
    with pytest.raises(OptionError):
        for_delta("/data/a\\b")
    assert for_delta("s3://bucket/a\\b") == "s3://bucket/a%5Cb"
    assert for_delta("s3://bucket") == "s3://bucket"
    assert for_delta("abfss://box@account.host/a b") == "abfss://box@account.host/a%20b"
