"""A shard works wherever the file system lets it be, or is refused before anything is written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windrow import Project, Shard
from windrow.errors import OptionError, ShardNotFoundError, StorageError
from windrow.shard.cache import PartCache

SCHEMA = pa.schema([("k", pa.int64()), ("seen", pa.map_(pa.string(), pa.timestamp("us")))])
PLAIN = pa.schema([("k", pa.int64())])

PIECES = st.one_of(
    st.text(st.characters(exclude_characters="/\0", codec="utf-8"), max_size=4),
    st.sampled_from(["%", "%20", "%2F", "%25", "\\", "\n", " ", "#", "?", "=", "[", "*", "{", "ü"]),
)
NAMES = (
    st.lists(PIECES, min_size=1, max_size=5).map("".join).filter(lambda n: n not in ("", ".", ".."))
)


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def keys(shard: Shard, **options: object) -> list[int]:
    found: list[int] = shard.snapshot(**options).to_table().column("k").to_pylist()
    return sorted(found)


@settings(max_examples=60)
@given(NAMES)
@example("a%20b")
@example("a b")
@example("a\\b")
@example("a\nb")
@example("100%")
@example("a?b#c")
@example("s3:")
@example("n" * 255)
@example("n" * 256)
@example("ü" * 200)
def test_a_shard_of_any_name(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for beside in ("a b", "a", "%"):  # what an escape too many would lead to
            Shard.create(f"{folder}/{beside}", PLAIN, key=["k"])
        before = sorted(os.listdir(folder))
        path = os.path.join(folder, name)
        if name in before:
            path = os.path.join(path, name)
        try:
            shard = Shard.create(path, PLAIN, key=["k"])
        except (OptionError, StorageError):
            assert sorted(os.listdir(folder)) == before
            with pytest.raises((OptionError, StorageError, ShardNotFoundError)):
                Shard.open(path)
            return
        shard.append(rows(*range(5_000)), lower=0, upper=1)
        shard = Shard.open(path)
        shard.append(rows(-1), lower=1, upper=2)
        assert keys(Shard.open(path)) == list(range(-1, 5_000))
        shard.compact(everything=True)
        assert len(shard.vacuum(retention_hours=0)) == 2
        cache = PartCache(os.path.join(folder, "cache"), 1 << 30)
        for _ in range(2):
            assert keys(Shard.open(path), keys={"k": [-1, 7]}, cache=cache) == [-1, 7]
        assert sorted(os.listdir(folder)) == sorted({*before, name, "cache"})
        assert all(Shard.open(f"{folder}/{other}").upper == 0 for other in before)


REFUSED = ["a%20b", "a\\b", "a\nb", "a/%41/b", "\x7f"]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("schema", [PLAIN, SCHEMA], ids=["by delta-rs", "by us"])
def test_a_refused_name_leaves_nothing(tmp_path: Path, name: str, schema: pa.Schema) -> None:
    with pytest.raises(OptionError, match="choose another name"):
        Shard.create(tmp_path / name, schema, key=["k"])
    with pytest.raises(OptionError, match="choose another name"):
        Shard.open(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", REFUSED)
def test_so_does_the_root_of_a_project(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="choose another name"):
        Project(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["n" * 300, "a/" + "n" * 300 + "/b"])
def test_a_name_that_is_too_long_leaves_nothing(tmp_path: Path, name: str) -> None:
    for schema in (PLAIN, SCHEMA):
        with pytest.raises(StorageError, match="too long"):
            Shard.create(tmp_path / name, schema, key=["k"])
    assert list(tmp_path.iterdir()) == []


def test_an_escape_is_decoded_in_a_file_uri_only(tmp_path: Path) -> None:
    shard = Shard.create(f"file://{tmp_path}/a%20b", PLAIN, key=["k"])
    shard.append(rows(1), lower=0, upper=1)
    assert shard.uri == f"{tmp_path}/a b"
    assert keys(Shard.open(tmp_path / "a b")) == [1]
    with pytest.raises(OptionError):
        Shard.open(f"{tmp_path}/a%20b")


def test_vacuum_leaves_a_shard_within_the_folder_of_another_alone(tmp_path: Path) -> None:
    outer = Shard.create(tmp_path / "outer", PLAIN, key=["k"])
    inner = Shard.create(tmp_path / "outer" / "inner", PLAIN, key=["k"])
    for shard in (outer, inner):
        shard.append(rows(1, 2), lower=0, upper=1)
    (tmp_path / "outer" / "orphan.parquet").write_bytes(b"of a writer that died")
    assert outer.vacuum(retention_hours=0) == ["orphan.parquet"]
    assert keys(Shard.open(inner.uri)) == keys(Shard.open(outer.uri)) == [1, 2]
