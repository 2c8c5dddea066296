"""The page of a report: one file that loads nothing, made of the report's JSON.

Everything that comes from data is escaped: names, keys and values are text, whatever they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from windrow.consistency import plots
from windrow.consistency.equality import OUTCOMES

_LONGEST = 300  # characters of a value
_PLOTS = 40  # features that have a plot of their own, those that agree least first
_CAUSES = {
    "arrived_later": "arrived after it was served",
    "store_behind": "the store had gone back",
    "lost_event": "a lost event",
    "delivered_twice": "delivered twice",
    "definition_changed": "another version of the definition",
    "clock_off": "a clock that was off",
    "record_damaged": "a damaged record",
    "unexplained": "not explained",
}


def page_of(report: Mapping[str, Any]) -> str:
    """HTML of a report, as `Report.to_json` has it."""
    name = _text(report["name"])
    body = [
        _heading(report),
        _coverage(report),
        _legend(),
        _all_hours(report),
        _features(report),
        _examples(report),
        _footer(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Consistency of {name}: {_text(report['verdict'])}</title>"
        f"<style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _heading(report: Mapping[str, Any]) -> str:
    verdict, share = report["verdict"], report["share"]
    total = sum(report["counted"].values())
    said = "Nothing was logged in this time: there is nothing to compare."
    if share is not None:
        low = [f["name"] for f in report["features"] if _below(f, report["threshold"])]
        said = f"{_percent(share)} of {total:,} values agree."
        if low:
            names = ", ".join(f"<code>{_text(one)}</code>" for one in low[:5])
            more = f" and {len(low) - 5} more" if len(low) > 5 else ""
            said += f" Below {_percent(report['threshold'])}: {names}{more}."
        else:
            said += f" Every feature agrees in at least {_percent(report['threshold'])} of them."
    span = " to ".join(_text(one) for one in (report["start"], report["end"]) if one)
    return (
        f"<header><p>Consistency of what was served with what a backfill computes</p>"
        f"<h1>{_text(report['name'])}</h1>"
        f'<p class="verdict {verdict.replace(" ", "-")}">{_text(verdict)}</p>'
        f"<p>{said}</p><p class=small>Run {_text(report['run'])}, version "
        f"{_text(report['version'] or 'unknown')}{', requests of ' + span if span else ''}.</p>"
        "</header>"
    )


def _below(feature: Mapping[str, Any], threshold: float) -> bool:
    return feature["share"] is not None and feature["share"] < threshold


def _coverage(report: Mapping[str, Any]) -> str:
    found = report["coverage"]
    lines = [_text(note) for note in report["notes"]]
    if report["left_out"]:
        names = ", ".join(f"<code>{_text(name)}</code>" for name in report["left_out"])
        lines.append(f"The log does not have {names}: they are not compared.")
    if found is not None:
        logged = (
            f"{found['logged']:,} of {found['requests']:,} requests are logged; "
            f"{found['sampled_out']:,} were sampled out at random, {found['dropped']:,} dropped."
        )
        if found["dropped"]:
            logged += " What was dropped came when most was asked: the verdict does not see it."
        if found["unclosed"]:
            logged += (
                f" {found['unclosed']:,} writers have not ended: what they served since they "
                "last wrote is not counted."
            )
        lines.insert(0, logged)
    return "".join(f"<p>{line}</p>" for line in lines)


def _legend() -> str:
    marks = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{name}" width="12" '
        f'height="12"/></svg>{_label(name)}</li>'
        for name in OUTCOMES
    )
    return f'<ul class="legend">{marks}</ul>'


def _all_hours(report: Mapping[str, Any]) -> str:
    hours: dict[str, dict[str, int]] = {}
    for feature in report["features"]:
        for one in feature["hours"]:
            counts = hours.setdefault(one["hour"], dict.fromkeys(OUTCOMES, 0))
            for name in OUTCOMES:
                counts[name] += one[name]
    if not hours:
        return ""
    drawn = plots.hours(sorted(hours.items()), "Share of values that do not agree, by hour")
    return (
        f"<section><h2>By hour</h2><p class=small>Share that does not agree.</p>{drawn}</section>"
    )


def _features(report: Mapping[str, Any]) -> str:
    if not report["features"]:
        return ""
    ordered = sorted(report["features"], key=lambda one: (one["share"] or 0.0, one["name"]))
    rows = []
    for number, one in enumerate(ordered):
        counts = {name: one[name] for name in OUTCOMES}
        numbers = "".join(f"<td>{count:,}</td>" for count in counts.values())
        errors = one["error_quantiles"]
        hours = [(h["hour"], {name: h[name] for name in OUTCOMES}) for h in one["hours"]]
        bad = sum(counts[name] for name in OUTCOMES[2:])
        detail = ""
        if bad and number < _PLOTS:
            drawn = plots.hours(hours, f"{one['name']}, by hour")
            detail = f'<tr class=detail><td colspan="10">{drawn}</td></tr>'
        mark = " class=low" if _below(one, report["threshold"]) else ""
        rows.append(
            f"<tr{mark}><th scope=row><code>{_text(one['name'])}</code></th>"
            f"<td>{_percent(one['share'])}</td><td>{plots.bar(counts, one['name'])}</td>{numbers}"
            f"<td>{_error(errors['p50'])}</td><td>{_error(errors['max'])}</td></tr>{detail}"
        )
    heads = "".join(f"<th scope=col>{_label(name)}</th>" for name in OUTCOMES)
    return (
        "<section><h2>By feature</h2><div class=wide tabindex=0 role=region "
        'aria-label="Features"><table><thead><tr><th scope=col>feature</th><th scope=col>agree</th>'
        f"<th scope=col>share</th>{heads}<th scope=col>median error</th>"
        f"<th scope=col>largest</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        "<p class=small>Errors are relative differences of values that both sides have.</p>"
        "</section>"
    )


def _examples(report: Mapping[str, Any]) -> str:
    if not report["examples"]:
        return ""
    counted: dict[str, int] = {}
    for one in report["examples"]:
        for reason in one["reasons"][:1]:
            counted[reason["reason"]] = counted.get(reason["reason"], 0) + 1
    causes = "".join(
        f"<li>{_text(_CAUSES.get(name, name))}: {count:,}</li>"
        for name, count in sorted(counted.items(), key=lambda one: -one[1])
    )
    shown = "".join(_example(one) for one in report["examples"])
    return f"<section><h2>Examples</h2><ul>{causes}</ul>{shown}</section>"


def _example(one: Mapping[str, Any]) -> str:
    keys = ", ".join(f"{name} = {_value(value)}" for name, value in one["keys"].items())
    reasons = "".join(_reason(reason) for reason in one["reasons"])
    served = [
        f"served at {_text(one['served_clock'])}" if one["served_clock"] else "",
        f"fresh up to {_text(one['fresh_at'])}" if one["fresh_at"] else "",
        f"version {_text(one['served_version'])}" if one["served_version"] else "",
    ]
    return (
        f"<article><h3><code>{_text(one['feature'])}</code></h3><p>{_text(keys)}, at "
        f"{_text(one['at'])}</p><dl><dt>online</dt><dd><code>{_text(_value(one['online']))}</code>"
        f"</dd><dt>offline</dt><dd><code>{_text(_value(one['offline']))}</code></dd></dl>"
        f"<p class=small>{_label(one['outcome'])}; {'; '.join(filter(None, served))}</p>"
        f"{reasons}</article>"
    )


def _reason(reason: Mapping[str, Any]) -> str:
    cause = _text(_CAUSES.get(reason["reason"], reason["reason"]))
    proven = " <span class=small>(computed: it gives what was served)</span>"
    return (
        f"<p><strong>{cause}</strong>{proven if reason['proven'] else ''}: "
        f"{_text(reason['says'])}</p>{_rows(reason['rows'])}"
    )


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th scope=col>{_text(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(_value(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return (
        "<div class=wide tabindex=0 role=region aria-label=Rows><table class=rows><thead><tr>"
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _footer(report: Mapping[str, Any]) -> str:
    return (
        "<footer class=small>All comparisons are in the Delta table "
        f"<code>consistency/{_text(report['name'])}/comparisons</code>, as long as this is the "
        "last run.</footer>"
    )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "NULL" if value is None else json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    """Escaped, and not too long."""
    text = str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _label(name: str) -> str:
    return _text(name.replace("_", " "))


def _percent(share: float | None) -> str:
    """Never rounded up to all."""
    if share is None:
        return ""
    return "100 %" if share == 1 else f"{int(share * 10_000) / 100:.2f} %"


def _error(error: float) -> str:
    return "0" if error == 0 else f"{error:.2g}"


_STYLE = """
:root { --ink: #22201a; --dim: #635e50; --page: #fdfcf8; --line: #d9d2bf; --card: #f6f2e6;
  --equal: #4f7d4a; --both_empty: #a9bfa2; --only_online: #8a5fb0; --only_offline: #2f6fa8;
  --different: #c2452d; --good: #2f6b2a; --bad: #a8321c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ece7da; --dim: #b0a992; --page: #1b1a16; --line: #45402f; --card: #26241d;
    --equal: #7fb078; --both_empty: #4f6b4a; --only_online: #b993dd; --only_offline: #74b0e6;
    --different: #ec7a61; --good: #93cf8b; --bad: #f29b86; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { margin: .2rem 0; overflow-wrap: anywhere; } h2 { margin-top: 2.5rem; }
h3 { margin: 0 0 .3rem; overflow-wrap: anywhere; }
.small { color: var(--dim); font-size: .875rem; }
.verdict { display: inline-block; margin: .3rem 0; padding: .2rem .8rem; border-radius: 1rem;
  border: 2px solid currentColor; font-weight: 700; }
.verdict.consistent { color: var(--good); } .verdict.inconsistent { color: var(--bad); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; list-style: none; }
.legend svg { width: .8rem; height: .8rem; margin-right: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, .rows th, .rows td { text-align: left; }
.rows { font-size: .875rem; } .low th, .low td { color: var(--bad); }
.detail td { text-align: left; }
svg.bar { width: 10rem; height: .8rem; } svg.hours { width: 100%; height: auto; }
.detail svg.hours { max-width: 36rem; }
.equal { fill: var(--equal); } .both_empty { fill: var(--both_empty); }
.only_online { fill: var(--only_online); } .only_offline { fill: var(--only_offline); }
.different { fill: var(--different); }
text.axis { fill: var(--dim); font-size: 11px; } path.axis { fill: none; stroke: var(--line); }
article { margin: 1rem 0; padding: .9rem 1rem; background: var(--card); border-radius: .5rem; }
article p { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .4rem 0; }
dd { margin: 0; overflow-wrap: anywhere; } code { font-family: ui-monospace, monospace; }
"""
