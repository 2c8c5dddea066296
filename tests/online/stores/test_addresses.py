"""Addresses of stores: which are which, and that a secret is in none that is shown."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from windrow.errors import OptionError, StorageUnavailableError
from windrow.online.stores.opening import open_store


@pytest.mark.parametrize(
    ("address", "shown", "local"),
    [
        ("/data/store", "/data/store", True),
        ("lmdb:/data/a:b", "/data/a:b", True),
        ("file:///data/a%20b", "/data/a b", True),
        ("redis://cache", "redis://cache:6379/0", False),
        ("redis://ann:s3cret@cache:7000/3", "redis://cache:7000/3", False),
        ("redis://:s3cret@127.0.0.1", "redis://127.0.0.1:6379/0", True),
        ("redis://[::1]:7000/1", "redis://[::1]:7000/1", True),
        ("rediss://ann:s3cret@cache?ssl_ca_certs=/ca.pem", "rediss://cache:6379/0", False),
        ("unix://ann:s3cret@/run/redis.sock?db=2", "unix:///run/redis.sock", True),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, shown: str, local: bool) -> None:
    store = open_store(address)
    for one in (store, pickle.loads(pickle.dumps(store))):
        assert (one.address, one.is_local) == (shown, local)
        assert "s3cret" not in repr(one) + str(vars(one))


def test_a_path_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("store").address == open_store(tmp_path / "store").address
    assert list(tmp_path.iterdir()) == []  # nothing is made before it is needed


@pytest.mark.parametrize(
    "address",
    [
        "",
        "lmdb:",
        "lmdb://folder",
        "s3://bucket/store",
        "postgres://ann:s3cret@host/db",
        "redis:ann:s3cret@host",
        "redis://",
        "redis://ann:s3cret@",
        "redis://ann:s3cret@host:port/0",
        "redis://ann:s3cret@host:0/0",
        "redis://ann:s3/cret@host",
        "redis://ann:s3cret@host/first",
        "redis://host?password=s3cret",
        "redis://ann:s3cret@host#0",
        "unix://ann:s3cret@relative.sock",
        "unix:///run/redis.sock?db=s3cret",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(OptionError, match=r"not an? (address|option)|not the address") as caught:
        open_store(address)
    assert "s3cret" not in str(caught.value)
    assert "cret" not in str(caught.value).replace("secret", "")


@pytest.mark.parametrize(
    "options",
    [{"namespace": "a:b"}, {"namespace": ""}, {"timeout": 0}, {"timeout": float("nan")}],
)
def test_options_without_a_meaning_are_refused(options: dict) -> None:
    with pytest.raises(OptionError):
        open_store("redis://host", **options)


def test_a_map_size_without_a_meaning_is_refused() -> None:
    with pytest.raises(OptionError, match="map_size"):
        open_store("/data/store", map_size=100)


@pytest.mark.parametrize(
    ("module", "address", "extra"),
    [("lmdb", "/data/store", "online"), ("redis", "redis://ann:s3cret@host", "redis")],
)
def test_a_missing_package_is_named_with_its_extra(
    module: str, address: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith((module, f"windrow.online.stores.{module}_")):
            monkeypatch.delitem(sys.modules, name)

    class Absent:
        def find_spec(self, name: str, *_: object) -> None:
            if name.partition(".")[0] == module:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(OptionError) as caught:
        open_store(address)
    assert f"pip install 'windrow[{extra}]'" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    for address in ("redis://ann:s3cret@127.0.0.1:1/0", f"unix://x:s3cret@{tmp_path}/none.sock"):
        store = open_store(address, timeout=0.1)
        with pytest.raises(StorageUnavailableError, match="does not answer") as caught:
            store.read(["n"], [])
        assert str(caught.value).startswith(store.address)
        assert "s3cret" not in str(caught.value)
