"""The console in a real browser: every page, both themes, a small screen, keys, accessibility."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_project import AS_OF, SCRIPT, make, report, serving

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FETCH = f"key.user_id=7&at={AS_OF}"
PAGES = {
    "overview": "",
    "lineage": "lineage",
    "views": "views",
    "a failed view": "view?name=ranked",
    "a view": "view?name=reputation",
    "sources": "relations",
    "a table": "relation?name=listings",
    "a row": "row?name=listings&number=0",
    "features": "features",
    "a group": "group?name=activity",
    "a join": "join?name=training",
    "a source": "source?name=views",
    "a number": f"feature?group=activity&name=price_avg_7d&{FETCH}",
    "a list": f"feature?group=activity&name=listing_id_last_3_14d&{FETCH}",
    "consistency": "consistency",
    "a report": "consistency?name=training",
    "ticks": "ticks",
    "a failure": "failure",
    "arrangements": "arrangements",
    "search": "search?q=a",
    "nothing": "nothing",
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium; nothing is downloaded."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("there is no Chromium; make browser installs it")
    with playwright.sync_playwright() as running:
        try:
            opened = running.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start here: {error}")
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`windrow serve`, with the console beside it, over a project that is real."""
    folder = tmp_path_factory.mktemp("console") / "shop"
    workspace = make(folder, spark)
    report(Path(workspace.root), "20240501T000000Z")
    report(Path(workspace.root), "20240502T000000Z", different=30)
    with serving(workspace) as place:
        yield place


class Visit:
    """A page of a browser, which notes what should not happen."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self._root = f"{address}/console/"
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.context.route("**/*", self._asked)

    def _said(self, message: Any) -> None:
        expected = "404 (Not Found)" in message.text  # of the page that is not there
        if message.type in ("error", "warning") and not expected:
            self.wrong.append(message.text)

    def _asked(self, route: Any) -> None:
        if route.request.url.startswith(self._root):
            route.continue_()
        else:
            self.wrong.append(f"asks for {route.request.url}")
            route.abort()

    def go(self, page: str) -> Any:
        self._begun = len(self.wrong)
        self.page.goto(self._root + page)
        return self.page

    @property
    def wrong_here(self) -> list[str]:
        """What has gone wrong since a page was gone to."""
        return self.wrong[self._begun :]

    def close(self) -> None:
        self.context.close()
        assert not self.wrong


@pytest.fixture(scope="module")
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Opens the console with options of the browser; afterwards nothing may have gone wrong."""
    opened: dict[str, Visit] = {}

    def visit(**options: Any) -> Visit:
        key = repr(options)
        if key not in opened:
            opened[key] = Visit(browser, address, **options)
        return opened[key]

    yield visit
    for one in opened.values():
        one.close()


THEMES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "small": {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}},
}
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}  # rules that a theme can break


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_every_page(visit: Any, name: str, theme: str) -> None:
    """Nothing is wrong with it, it asks for nothing elsewhere, and all can read it."""
    at = visit(**THEMES[theme])
    page = at.go(PAGES[name])
    assert page.locator("h1").count() == 1
    assert page.title() != "run"
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the page scrolls sideways"
    assert not at.wrong_here
    assert not _inaccessible(page)
    if theme == "small":  # the other theme, of the page that is there: only colours change
        page.emulate_media(color_scheme="light")
        found = _inaccessible(page, COLOURS)
        page.emulate_media(color_scheme="dark")
        assert not found


def _inaccessible(page: Any, options: dict[str, Any] | None = None) -> list[Any]:
    """What axe-core calls serious."""
    found = axe.Axe().run(page, options=options).response["violations"]
    return [
        (one["id"], node["target"], node["failureSummary"])
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_from_a_view_that_fails_to_its_cause(visit: Any) -> None:
    page = visit(color_scheme="light").go("")
    failing = page.locator(".notices li.bad", has_text="the last tick failed").first
    failing.get_by_role("link", name="ranked").first.click()
    assert page.locator("h1").inner_text() == "ranked"
    page.get_by_role("link", name="why it failed").first.click()
    assert "DIVIDE_BY_ZERO" in page.locator("pre.notice").inner_text()
    waiting = page.locator("section", has_text="What waits for it")
    waiting.get_by_role("link", name="ratings").first.click()
    assert page.locator("h1").inner_text() == "ratings"
    assert "INSERT INTO ratings VALUES (1000, 3, 0)" in page.inner_text("main")
    row = page.locator("#changes ~ .scroll tbody tr").first
    assert row.inner_text().split()[-3:] == ["1000", "3", "0"]


def test_a_click_in_the_lineage_goes_there(visit: Any) -> None:
    page = visit(color_scheme="light").go("lineage")
    page.locator("svg a", has_text="reputation").first.click()
    assert "/console/view?name=reputation" in page.url
    page.locator(".crumbs").get_by_role("link", name="lineage").click()
    assert page.locator(".node.chosen text").first.text_content() == "reputation"


def test_a_value_and_the_cells_that_made_it(visit: Any, address: str) -> None:
    page = visit(color_scheme="light").go("feature?group=activity&name=view_id_count_7d")
    page.get_by_label("user_id").fill("7")
    page.get_by_label("at").fill(AS_OF)
    page.get_by_role("button", name="Fetch").click()
    value = int(page.locator("output").inner_text())
    assert value > 0
    counted = page.locator(".scroll.tall tbody tr:not(.out) td.n").all_inner_texts()
    assert sum(map(int, counted)) == value  # the cells in the window have as many rows


def test_distribution_of_a_backfilled_feature(visit: Any) -> None:
    page = visit(color_scheme="light").go("feature?group=activity&name=price_avg_7d")
    assert "200 rows of results/training" in page.inner_text("main")
    assert page.locator(".chart rect").count() > 10


def test_hostile_values_are_text(visit: Any) -> None:
    page = visit(color_scheme="light").go("relation?name=listings")
    assert SCRIPT in page.inner_text("main")
    assert page.title() != "run"
    page.get_by_role("link", name="all 100,000 characters").first.click()
    assert page.inner_text("dl.row").count("long ") > 19_000


def test_by_keyboard(visit: Any) -> None:
    at = visit(color_scheme="light", viewport={"width": 1000, "height": 700})
    page = at.go("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("reput")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=reput")
    assert page.get_by_role("link", name="reputation").count() == 1
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.wait_for_url("**/console/lineage")
    page.locator("svg a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/lineage" not in url)


def test_the_theme_is_chosen_without_a_script(browser: Any, address: str) -> None:
    at = Visit(browser, address, color_scheme="light", java_script_enabled=False)
    page = at.go("views")
    before = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    page.get_by_role("link", name="Dark").click()
    assert page.url.endswith("/console/views")
    after = page.locator("body").evaluate("one => getComputedStyle(one).backgroundColor")
    assert before != after
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("link", name="ranked").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    at.close()
