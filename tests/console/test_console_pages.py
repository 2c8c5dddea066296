"""The console's pages over projects that are made without Spark."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from console_project import report
from hypothesis import given, settings
from hypothesis import strategies as st

from console_data import fill, group, large, put_join_online, put_online
from windrow.console.assets import address
from windrow.console.layers import laid_out, layers_of
from windrow.console.looking import Definitions
from windrow.console.plans import parsed
from windrow.console.refs import Ref, known_as
from windrow.console.sql_marks import marked
from windrow.console.text import visible
from windrow.online.server.tokens import Tokens
from windrow.project import Project
from windrow.storage.store import Store
from windrow.storage.underway import noted
from windrow.views.engine.tick_failures import note_failure

PAGES = [
    "",
    "lineage",
    "lineage?arrangements=no",
    "views",
    "relations",
    "features",
    "consistency",
    "ticks",
    "failure",
    "arrangements",
    "search?q=a",
]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE x; --",
    "a/b?c#d&e=f%2F",
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "x" * 100_000,
    "~tilde",
    "\u0000\u0007\x1b[31mred",
    "𝔘𝔫𝔦 Ünï 名前",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables, four views over them, served groups, reports."""
    root = tmp_path_factory.mktemp("console")
    fill(
        root,
        {"ratings": ["good", None, "bad"], "listings": ["roses"]},
        {
            "reputation": ["ratings"],
            "ranked": ["listings", "reputation"],
            "best": ["ranked"],
            "titles": ["listings"],
        },
    )
    project = Project(root, progress=False)
    groups = [group("activity"), group("interest", 3)]
    put_online(project, groups)
    put_join_online(project, "training", groups)
    report(root, "2024-05-01")
    report(root, "2024-05-02", different=30)
    return root


@pytest.fixture(scope="module")
def client(root: Path, opened: Any) -> Any:
    return opened(root)


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_a_project(client: Any, page: str) -> None:
    answer = client.ask(page)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert re.search(r"<h1>[^<]+", answer.text)


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_nothing(tmp_path: Path, opened: Any, page: str) -> None:
    """A project without anything in it: each page says so, and nothing is made by looking."""
    root = tmp_path / "state"
    assert opened(root).ask(page).status == 200
    assert not root.exists()


def test_looking_changes_nothing(root: Path, client: Any) -> None:
    def stamps() -> dict[str, int]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(p): p.stat().st_mtime_ns for p in files if p.name != "lock.mdb"}

    before = stamps()
    for page in [*PAGES, "view?name=reputation", "relation?name=ratings", "group?name=activity"]:
        client.page(page)
    client.page("feature?group=activity&name=column_0_sum_7d&key.user_id=3")
    assert stamps() == before


def test_a_view_shows_query_plan_figures_rows_and_who_shares(client: Any) -> None:
    text = client.page("view?name=reputation")
    assert '<span class="keyword">SELECT</span>' in text
    assert "2 in · 2 out · 1 looked up" in text
    assert "keeps" in text
    assert 'href="/console/relation?name=ratings"' in text  # the input, in the drawing too
    assert 'href="/console/view?name=ranked"' in text  # that reads it
    assert text.count("<tr>") > 3
    assert "+1" in text


def test_what_is_not_there(client: Any) -> None:
    for page in ("nope", "view?name=nope", "relation?name=best", "group?name=x", "row?name=best"):
        answer = client.ask(page)
        assert answer.status in (200, 404)
        assert "Traceback" not in answer.text
    assert client.ask("view?name=ratings").status == 404  # a table is not a view
    assert client.ask("views", "DELETE").status == 405
    assert client.ask("views", "POST").status == 405
    assert client.ask("static/nope.css").status == 404


def test_files_are_kept_for_ever_under_the_digest_of_their_content(client: Any) -> None:
    for name in ("console.css", "console.js", "mark.svg"):
        answer = client.ask(f"static/{address(name)}")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
    page = client.page("")
    assert not re.search(r'(?:src|href)="(?!/console|#)', page)
    assert "style=" not in page


def test_a_value_is_explained_by_nothing_where_there_is_no_record(client: Any) -> None:
    text = client.page("feature?group=activity&name=column_0_sum_7d&key.user_id=3")
    assert "There is no record of this key" in text
    wrong = client.page("feature?group=activity&name=column_0_sum_7d&key.user_id=x")
    assert "which is not int64" in html.unescape(wrong)


def test_consistency_over_time_and_its_examples(client: Any) -> None:
    text = client.page("consistency?name=training")
    assert "97" in text
    assert "arrived later" in text
    assert "&lt;b&gt;7&lt;/b&gt;" in text
    assert "<b>7</b>" not in text
    assert text.count('class="ok"') >= 1
    assert "inconsistent" in client.page("")
    older = client.page("consistency?name=training&run=2024-05-01")
    assert "every value was as it should be" in older


def test_a_report_is_shown_as_it_was_stored(client: Any) -> None:
    answer = client.ask("report?name=training&run=2024-05-02")
    assert answer.status == 200
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    for wrong in ("name=..&run=x", "name=training&run=../../history/head", "name=training", ""):
        assert client.ask(f"report?{wrong}").status == 404


def test_reports_that_cannot_be_read_are_left_out(tmp_path: Path, opened: Any) -> None:
    report(tmp_path, "a")
    folder = tmp_path / "consistency" / "training" / "reports"
    (folder / "b.json").write_text("{")
    (folder / "c.json").write_text("[]")
    (folder / "d.json").write_text("{}")
    assert opened(tmp_path).ask("consistency").status == 200


# From what is wrong to its cause


def links(text: str) -> dict[str, str]:
    """The last link of each text."""
    found = re.findall(r'<a[^>]*href="([^"]+)"[^>]*>(.*?)</a>', text, re.DOTALL)
    return {
        html.unescape(re.sub(r"<[^>]+>", "", said)).strip(): html.unescape(to).removeprefix(
            "/console/"
        )
        for to, said in found
    }


def test_from_views_that_wait_to_the_table_they_wait_for(tmp_path: Path, opened: Any) -> None:
    fill(tmp_path, {"orders": ["a"]}, {"totals": ["orders"], "best": ["totals"]}, late="orders")
    note_failure(Store.at(tmp_path), ValueError("no"), 1)  # type: ignore[arg-type] # long ago
    client = opened(tmp_path)
    assert "waits for a tick" in client.page("")
    text = client.page("view?name=best")
    assert "it waits for a tick" in text
    cause = client.page(links(text)["orders"])
    assert "UPDATE orders SET stars = 1" in cause
    assert "they have not seen it yet" in cause


def test_from_a_view_whose_tick_failed_to_why(tmp_path: Path, opened: Any) -> None:
    from windrow.errors import DataError

    fill(tmp_path, {"orders": ["a"]}, {"totals": ["orders"], "best": ["totals"]}, late="orders")
    error = DataError("view totals: [DIVIDE_BY_ZERO] <i>row 7</i>")
    note_failure(Store.at(tmp_path), error, 2**62, "totals")
    client = opened(tmp_path)
    text = client.page("")
    assert "the last tick failed" in text
    why = client.page(links(text)["why it failed"])
    assert "[DIVIDE_BY_ZERO] &lt;i&gt;row 7&lt;/i&gt;" in why
    assert links(why)["totals"] == "view?name=totals"
    other = client.page("view?name=best")
    assert links(other)["view totals"] == "view?name=totals"


def test_what_is_under_way_is_shown_with_its_progress(tmp_path: Path, opened: Any) -> None:
    """Seen while another process is at it; what was killed is not."""
    code = (
        "import sys; from windrow.storage.store import Store\n"
        "from windrow.storage.underway import noted\n"
        "with noted(Store.at(sys.argv[1]), 'backfill of training') as note:\n"
        "    note.stage('merge', 1000); note.done(3, 4)\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        text = opened(tmp_path).page("")
        assert "backfill of training" in text
        assert 'value="75.0"' in text
        assert "3 of 4 tasks" in text
        child.kill()
    assert "backfill of training" not in opened(tmp_path).page("")
    with noted(Store.at(tmp_path), "upload of x") as note:
        note.stage("a", None)
        assert "upload of x" in opened(tmp_path).page("")
    assert not list((tmp_path / "running").glob("*.json"))


def test_stale_groups_and_changed_definitions_need_attention(tmp_path: Path, opened: Any) -> None:
    project = Project(tmp_path, progress=False)
    put_online(project, [group("activity")], max_staleness=10)
    changed = group("activity", 7)
    definitions = Definitions({}, {"activity": changed}, {one.name: one for one in changed.sources})
    client = opened(tmp_path, definitions)
    text = client.page("")
    assert "its features are stale" in text
    assert "is defined otherwise than it is served" in text
    assert "activity" in client.page(links(text)["source views"])
    assert "As it is defined now" in client.page("group?name=activity")


# Hostile names and values


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, opened: Any) -> Any:
    root = tmp_path_factory.mktemp("hostile")
    tables = {f"t{name}": [*HOSTILE] for name in HOSTILE}
    fill(root, tables, {f"v{name}": [f"t{name}"] for name in HOSTILE})
    return opened(root)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_names_and_values_are_text(hostile: Any, number: int) -> None:
    name = HOSTILE[number]
    for page, kind, start in (("view", "view", "v"), ("relation", "table", "t")):
        ref = Ref(kind, start + name)
        assert ref.href.startswith(f"/console/{page}?")
        text = hostile.page(ref.href.removeprefix("/console/"))
        safe(text)
        assert len(text) < 300_000 or len(name) > 1_000
        safe(hostile.page(f"lineage?of={quote(ref.id)}"))
    assert hostile.ask(f"view?name={quote(known_as(f'v{name}'))}").status == 200


@pytest.mark.parametrize("page", PAGES)
def test_pages_of_hostile_names(hostile: Any, page: str) -> None:
    text = hostile.page(page)
    safe(text)
    assert len(text) < 300_000


def test_a_long_value_can_be_seen_as_a_whole(hostile: Any) -> None:
    text = hostile.page("relation?name=" + quote("t{{ 7 * 7 }}"))
    assert "x" * 3_000 not in text
    whole = links(text)["all 100,000 characters"]
    assert "x" * 100_000 in hostile.page(whole)


def safe(text: str) -> None:
    """No tag, attribute or hidden character of a name is left."""
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "49" not in re.findall(r"<h1>.*?</h1>", text)[0]
    Tags().feed(text)


class Tags(HTMLParser):
    """Refuses what no page of the console has: pictures, handlers, scripts but its own."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag not in ("img", "iframe", "object", "embed")
        assert tag != "script" or (given["src"] or "").startswith("/console/static/")
        assert not [name for name in given if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            assert name not in given or (given[name] or "").startswith(("/console", "#"))


# Who may look, and who may act

TOKEN, ACTOR = "a-token-of-a-reader", "a-token-of-an-actor"


def test_with_tokens_one_signs_in(root: Path, opened: Any) -> None:
    client = opened(root, tokens=Tokens([TOKEN]))
    answer = client.ask("view?name=best")
    assert answer.status == 303
    assert answer.headers["location"] == "/console/sign-in?back=%2Fconsole%2Fview%3Fname%3Dbest"
    assert "ratings" not in answer.text
    assert client.ask("sign-in", "POST", b"token=wrong-wrong-wrong-wrong").status == 401
    form = f"token={TOKEN}&back=/console/view%3Fname=best".encode()
    signed = client.ask("sign-in", "POST", form)
    assert signed.status == 303
    assert signed.headers["location"] == "/console/view?name=best"
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    inside = client.ask("view?name=best", cookie=cookie.partition(";")[0])
    assert inside.status == 200
    assert "Sign out" in inside.text
    assert client.ask("view?name=best", authorization=f"Bearer {TOKEN}").status == 200
    assert client.ask("", cookie="windrow_console=" + "0" * 64).status == 303
    assert client.ask(f"static/{address('console.css')}").status == 200


ELSEWHERE = [
    "https://example.com/",
    "//example.com/console/",
    "/other",
    "/console/\r\nx: y",
    "\\\\x",
]


@pytest.mark.parametrize("back", ELSEWHERE)
def test_nobody_is_sent_elsewhere(root: Path, opened: Any, back: str) -> None:
    client = opened(root, tokens=Tokens([TOKEN]))
    form = f"token={TOKEN}&back={quote(back)}".encode()
    assert client.ask("sign-in", "POST", form).headers["location"] == "/console/"
    themed = client.ask(f"theme?to=dark&back={quote(back)}")
    assert themed.headers["location"] == "/console/"


def test_themes_are_remembered(client: Any) -> None:
    answer = client.ask("theme?to=dark&back=/console/views")
    assert answer.headers["location"] == "/console/views"
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert 'data-theme="dark"' in client.ask("", cookie=cookie).text
    assert "data-theme" not in client.ask("", cookie='windrow_theme="><script>').text


def test_only_those_may_act_whose_token_allows_it(tmp_path: Path, opened: Any) -> None:
    fill(tmp_path, {"orders": ["a"]}, {"totals": ["orders"]}, ticks=20)
    client = opened(tmp_path, actors=Tokens([ACTOR]))
    assert "Merge" not in client.page("view?name=totals")
    assert client.ask("upkeep", "POST", b"name=totals").status == 403
    signed = client.ask("sign-in", "POST", f"token={ACTOR}".encode())
    cookie = signed.headers["set-cookie"].partition(";")[0]
    text = client.ask("view?name=totals", cookie=cookie).text
    code = re.search(r'name="code" value="([0-9a-f]+)"', text)
    assert code is not None
    form = f"name=totals&code={code[1]}".encode()
    assert client.ask("upkeep", "POST", b"name=totals&code=x", cookie=cookie).status == 403
    other = {"cookie": cookie, "origin": "https://example.com", "host": "here"}
    assert client.ask("upkeep", "POST", form, **other).status == 403

    def runs() -> int:
        page = client.ask("view?name=totals", cookie=cookie).text
        cells = re.findall(r'<td class="n">(\d+)</td><td><span class="quiet">', page)
        return max(map(int, cells))

    before = runs()
    done = client.ask("upkeep", "POST", form, cookie=cookie)
    assert done.status == 303
    assert runs() < before


# What pages are made of


def test_a_large_catalogue(tmp_path: Path, opened: Any) -> None:
    """Pages stay small, whatever there is; a drawing shows what is near."""
    definitions = large(tmp_path, views=120, groups=20)
    client = opened(tmp_path, definitions)
    for page in (*PAGES, "view?name=view_3", "group?name=group_3", "lineage?of=view%3Aview_7"):
        assert len(client.page(page)) < 120_000, page
    assert client.page("lineage").count('class="node') <= 60
    assert "51–100 of 120" in client.page("views?from=50")
    assert "view_77" in client.page("search?q=view_77")


def test_a_stream_tells_how_far_it_is(tmp_path: Path, opened: Any) -> None:
    import pyarrow as pa

    from windrow import EventSource, FolderStream
    from windrow.sources.stream_shard import create_stream

    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    uri = tmp_path / "streams" / "clicks"
    shard = create_stream(str(uri), schema, "ts", None)
    shard.append(pa.table({"id": [1, 2], "ts": [1, 2]}), lower=shard.upper, upper=shard.upper + 9)
    for part, numbers in (("offsets", (0, 1)), ("commits", (0,))):
        (uri / "_checkpoint" / part).mkdir(parents=True)
        for number in numbers:
            (uri / "_checkpoint" / part / str(number)).write_text("v1")
    source = EventSource(
        name="clicks", time="ts", stream=FolderStream("arriving", schema="id BIGINT, ts BIGINT")
    )
    client = opened(tmp_path, Definitions({}, {}, {"clicks": source}))
    assert "micro-batch 1; 2 rows are in" in client.page("")
    assert "under way since" in client.page("source?name=clicks")


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, n)] * 2))))
@settings(max_examples=60)
def test_layouts_go_one_way_and_boxes_stand_apart(pairs: list[tuple[int, int]]) -> None:
    edges = [(f"n{a}", f"n{b}") for a, b in pairs if a < b]
    nodes = sorted({name for edge in edges for name in edge} | {"alone"})
    layers = layers_of(nodes, edges)
    assert all(layers[a] < layers[b] for a, b in edges)
    for downwards in (False, True):
        drawn = laid_out(nodes, edges, downwards=downwards)
        assert {box.id for box in drawn.boxes} == set(nodes)
        assert len(drawn.lines) == len(set(edges))
        for one in drawn.boxes:
            assert one.x >= 0
            assert one.y >= 0
            for other in drawn.boxes:
                apart = (
                    one is other
                    or one.x + one.width <= other.x + 0.1
                    or other.x + other.width <= one.x + 0.1
                    or one.y + one.height <= other.y + 0.1
                    or other.y + other.height <= one.y + 0.1
                )
                assert apart


@given(st.text(alphabet="aSELCT 'x\"`(-/*)1.\n", max_size=60))
def test_marked_sql_is_the_text(text: str) -> None:
    assert "".join(piece for _, piece in marked(text)) == text


def test_hidden_characters_are_written_out() -> None:
    assert visible("a\u202eb\u200bc\ufeff\x00") == "a⟨U+202E⟩b⟨U+200B⟩c⟨U+FEFF⟩⟨U+0000⟩"
    assert visible("né\n\t名") == "né\n\t名"


def test_plans_are_read_from_their_text() -> None:
    text = "A\n  B\n    - about B\n    Input x\n  C\n    Input y"
    found = parsed(text)
    assert [one.inputs for one in found] == [[1, 3], [2], [], [4], []]
    assert found[1].details == ["about B"]
    assert found[2].relation == "x"
