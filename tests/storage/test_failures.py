"""What stores say when they fail, in the words of Arrow and of delta-rs."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from windrow import Shard
from windrow.errors import StorageError, StorageUnavailableError, from_json, to_json
from windrow.storage.failures import failure
from windrow.storage.store import Store

FOLDER, BUCKET = "/nowhere/s", "s3://bucket/s"
SAID: dict[str, tuple[str, Exception, str]] = {
    "quota": (FOLDER, OSError(errno.EDQUOT, "Disk quota exceeded"), "disk is full"),
    "full, delta-rs": (FOLDER, Exception("Unable\n ↳ No space (os error 28)\n"), "disk is full"),
    "read-only": (FOLDER, Exception("Read-only file system (os error 30)"), "is read-only"),
    "no rights": (FOLDER, PermissionError(errno.EACCES, "Permission denied"), "belongs to root"),
    "too many files": (FOLDER, OSError(errno.EMFILE, "Too many open files"), "ulimit"),
    "not there": (
        BUCKET,
        OSError("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7"),
        "does not answer",
    ),
    "not there, delta-rs": (
        BUCKET,
        Exception("error sending request\n \x1b[31m↳\x1b[0m Connection refused (os error 111)"),
        r"does not answer \(error sending request Connection refused",
    ),
    "overloaded": (BUCKET, OSError("AWS Error UNKNOWN (HTTP status 503)"), "does not answer"),
    "not allowed": (BUCKET, OSError("AWS Error ACCESS_DENIED during PutObject"), "credentials"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_passes_is_told_with_what_to_do(name: str) -> None:
    place, error, expected = SAID[name]
    with pytest.raises(StorageUnavailableError, match=expected) as caught:
        raise failure(place, "the commit failed", error)
    assert str(caught.value).startswith(f"{place}: the commit failed: ")
    assert "\n" not in str(caught.value)


def test_the_rest_is_no_passing_failure() -> None:
    for error in (OSError(errno.EIO, "Input/output error"), OSError("AWS Error NO_SUCH_BUCKET")):
        found = failure(BUCKET, "cannot read it", error)
        assert type(found) is StorageError
        assert str(found).endswith(str(error))


def test_it_travels_between_processes() -> None:
    error = StorageUnavailableError("the disk is full")
    for copy in (pickle.loads(pickle.dumps(error)), from_json(to_json(error))):
        assert (type(copy), str(copy)) == (StorageUnavailableError, "the disk is full")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="name is too long") as caught:
        Shard.create(tmp_path / ("x" * 300), pa.schema([("k", pa.int64())]), key=["k"])
    assert "xxx" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"")
    with pytest.raises(StorageError, match=r"in its place|Not a directory|File exists"):
        Shard.create(tmp_path / "s", pa.schema([("k", pa.int64())]), key=["k"])
    assert os.listdir(tmp_path) == ["s"]


def test_what_killed_processes_had_begun_to_write_goes(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    store.put("holds/note.json", b"{}")
    begun = ["holds/.note.json-0123456789abcdef", "log/00000000000000000007.json#1"]
    for name in [*begun, "log/00000000000000000007.json"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "holds" / ".note.json-fedcba9876543210").write_bytes(b"{")  # by one who lives
    store.drop_half_written()
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == [
        "holds/.note.json-fedcba9876543210",
        "holds/note.json",
        "log/00000000000000000007.json",
    ]
