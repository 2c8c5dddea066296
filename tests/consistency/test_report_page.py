"""The page of a report: complete, on its own, and safe whatever names and values hold."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from windrow.consistency import (
    Cause,
    Counted,
    Example,
    FeatureReport,
    Reason,
    Report,
    read_page,
    read_report,
    reports,
)
from windrow.consistency.page import page_of
from windrow.consistency.stored import new_run, store_report
from windrow.errors import OptionError
from windrow.online.log.reading import Coverage
from windrow.storage.store import Store

START = 1_714_521_600_000
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
VOID = {"meta", "path", "rect"}


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report(name: str = "training", text: str = "plain") -> Report:
    counted = Counted(90, 5, 1, 2, 2)
    hours = {START + n * 3_600_000: Counted(45, 2, n, n, n) for n in range(2)}
    feature = FeatureReport(text, counted, {"p50": 0.0, "p90": 0.0, "p99": 0.1, "max": 0.5}, hours)
    rows = ({"source": text, "time": text, "arrived": None, "price": [text, {"a": text}]},)
    example = Example(
        text,
        {text: text},
        START,
        "different",
        {text: [text]},
        text * 1000,
        0.5,
        "v1",
        START,
        START,
        (Reason(Cause.LOST, text, rows, True),),
    )
    return Report(
        name,
        "20240501T120000Z",
        "v2",
        "2024-05-01",
        "2024-05-02",
        0.999,
        "inconsistent",
        counted,
        (feature,),
        (example,),
        Coverage(200, 100, 90, 10, 1),
        (text,),
        (text,),
    )


def test_hostile_names_and_values_are_text() -> None:
    elements = Elements(page_of(report(text=HOSTILE).to_json()))
    names = {name for name, _ in elements.found}
    assert not names & {"script", "img", "iframe", "object", "link", "form", "a"}
    for _, attributes in elements.found:
        assert not any(name.startswith("on") for name in attributes)
        assert not {"src", "href"} & set(attributes)
    assert not elements.open
    assert HOSTILE in elements.text
    plain = Elements(page_of(report().to_json()))
    assert [n for n, _ in plain.found] == [n for n, _ in elements.found]  # no element of theirs


def test_nothing_is_loaded() -> None:
    page = page_of(report().to_json())
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_what_the_page_says() -> None:
    text = Elements(page_of(report().to_json())).text
    assert "95.00 % of 100 values agree" in text
    assert "100 of 200 requests are logged; 90 were sampled out at random, 10 dropped" in text
    assert "1 writers have not ended" in text
    assert "a lost event" in text
    empty = Report("x", "r", None, None, None, 0.9, "no data", Counted())
    assert "nothing to compare" in Elements(page_of(empty.to_json())).text


def test_reports_are_listed_and_read(tmp_path: Path) -> None:
    root = Store.at(tmp_path)
    assert reports(root) == []
    store_report(root, report("training"))
    store_report(root, report("other"))
    found = reports(root)
    assert [one.name for one in found] == ["training", "other"]
    assert [one.name for one in reports(root, "other")] == ["other"]
    assert found[0].json.endswith("consistency/training/reports/20240501T120000Z.json")
    written = read_report(root, "training", found[0].run)
    assert written == json.loads(json.dumps(report().to_json()))
    assert read_page(root, "training", found[0].run).startswith(b"<!doctype html>")
    taken = new_run(root, "training", START + 12 * 3_600_000)
    assert taken == "20240501T120001Z"


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "", ".hidden", "a\\b"])
def test_names_do_not_lead_elsewhere(tmp_path: Path, name: str) -> None:
    for call in (read_report, read_page):
        with pytest.raises(OptionError):
            call(Store.at(tmp_path), name, "20240501T120000Z")
        with pytest.raises(OptionError):
            call(Store.at(tmp_path), "training", name)


def test_the_fields_of_the_json() -> None:
    """Others read them."""
    found: dict[str, Any] = report().to_json()
    assert list(found)[:10] == [
        *("name", "run", "version", "start", "end", "threshold", "verdict", "share", "counted"),
        "coverage",
    ]
    (feature,) = found["features"]
    assert feature["hours"][0]["hour"] == "2024-05-01T00:00:00.000Z"
    assert {"name", "equal", "different", "error_quantiles", "hours"} <= set(feature)
    (example,) = found["examples"]
    assert {"feature", "keys", "at", "online", "offline", "served_version"} <= set(example)
    assert set(example["reasons"][0]) == {"reason", "says", "proven", "rows"}
