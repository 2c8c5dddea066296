from __future__ import annotations

from pathlib import Path

from windrow.storage.records import read_record, write_record
from windrow.storage.store import Store


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    store = Store.at(tmp_path)
    record = {"name": "ann", "at": 12.5, "files": ["a", "b"], "more": {"x": None}}
    write_record(store, "one.json", record)
    assert read_record(store, "one.json") == record
    whole = (tmp_path / "one.json").read_bytes()
    for at in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << (at % 8)
        (tmp_path / "one.json").write_bytes(damaged)
        assert read_record(store, "one.json") in (None, record)
    (tmp_path / "one.json").write_bytes(whole[:-3])
    assert read_record(store, "one.json") is None
