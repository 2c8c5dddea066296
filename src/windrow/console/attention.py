"""What needs attention: each line says what is wrong, with what, and leads to its cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from windrow.console.catalogue import Catalogue
from windrow.console.consistency import Report
from windrow.console.refs import Ref, link
from windrow.console.running import Failure
from windrow.console.text import length, moment, share, short

BAD, WARN = "bad", "warn"
PATIENCE = 60_000  # milliseconds for which changes may wait for a tick


@dataclass(frozen=True)
class Attention:
    """Something to look at. `href` is where its cause is found."""

    level: str
    about: Ref
    says: str
    href: str
    leads: str  # what the link says
    causes: tuple[Ref, ...] = ()
    also: tuple[Ref, ...] = ()  # others of which the same is said

    def concerns(self, ref: Ref) -> bool:
        """Whether it is about this thing, or caused by it."""
        return ref == self.about or ref in self.causes or ref in self.also


def attention(
    catalogue: Catalogue, reports: Sequence[Report], failure: Failure | None, now: int
) -> list[Attention]:
    """Everything that needs attention, the worst first."""
    found = [
        *_views(catalogue, failure, now),
        *_quarantines(catalogue),
        *_online(catalogue, now),
        *_consistency(reports),
    ]
    return sorted(found, key=lambda one: (one.level != BAD, one.about.kind, one.about.name))


def _views(catalogue: Catalogue, failure: Failure | None, now: int) -> Iterator[Attention]:
    failed = failure is not None and failure.time > catalogue.ticked
    together: dict[tuple[str, ...], list[str]] = {}
    for view, newer in catalogue.waiting.items():
        own = failed and failure is not None and failure.view == view
        together.setdefault((view, *newer) if own else ("", *newer), []).append(view)
    for (_, *roots), (view, *others) in together.items():
        behind = tuple(roots)
        also = tuple(Ref("view", name) for name in others)
        causes = tuple(catalogue.relations[name].ref for name in behind)
        newest = max(catalogue.relations[name].changed_at or 0 for name in behind)
        waited = now - newest
        names = behind[0] if len(behind) == 1 else f"{behind[0]} and {len(behind) - 1} more"
        if failed and failure is not None:
            own = failure.view in (None, view)
            yield Attention(
                BAD if own else WARN,
                Ref("view", view),
                _failed(failure, now, view if own else None, bool(also)),
                link("failure") if own else Ref("view", str(failure.view)).href,
                "why it failed" if own else f"view {failure.view}",
                causes,
                also,
            )
        elif waited > PATIENCE:
            yield Attention(
                WARN,
                Ref("view", view),
                f"{'are' if also else 'is'} at {moment(catalogue.ticked)}; changes of {names} have "
                f"waited for a tick for {length(waited)}",
                causes[0].href,
                f"changes of {behind[0]}",
                causes,
                also,
            )


def _failed(failure: Failure, now: int, view: str | None, several: bool) -> str:
    """What is said of views that a tick has left behind: why, of the one for which it failed."""
    ago = f"the last tick failed, {length(now - failure.at)} ago"
    if view is None:
        return f"{'wait' if several else 'waits'} for a tick: {ago}"
    return f"{ago}: {short(failure.says.removeprefix(f'view {view}: '), 180)}"


def _quarantines(catalogue: Catalogue) -> Iterator[Attention]:
    for one in catalogue.of_kind("source"):
        if one.quarantined:
            yield Attention(
                WARN,
                one.ref,
                f"{one.quarantined:,} of its changes are left out",
                f"{one.ref.href}#quarantine",
                "the quarantine",
            )
    for name, state in catalogue.streams.items():
        if state.quarantined:
            ref = Ref("source", name)
            yield Attention(
                WARN,
                ref,
                f"{state.quarantined:,} messages of its stream became no row",
                f"{ref.href}#quarantine",
                "the quarantine",
            )


def _online(catalogue: Catalogue, now: int) -> Iterator[Attention]:
    if catalogue.failure is not None:
        yield Attention(
            BAD,
            Ref("store", "records"),
            f"the online store cannot be read: {catalogue.failure}",
            link("features"),
            "features",
        )
    for group in catalogue.groups.values():
        if group.is_stale(now) and group.fresh_at is not None and group.current is not None:
            slowest = group.sources[group.current.fresh.index(group.fresh_at)]
            cause = Ref("source", slowest)
            yield Attention(
                BAD if group.current.served.refuses_stale else WARN,
                group.ref,
                f"its features are stale: rows of {slowest} were last taken in "
                f"{length(now - group.fresh_at)} ago",
                cause.href,
                f"source {slowest}",
                (cause,),
            )
        if group.is_changed:
            yield Attention(
                WARN,
                group.ref,
                "is defined otherwise than it is served; `windrow upload` puts the new definition "
                "online",
                group.ref.href,
                "both definitions",
            )


def _consistency(reports: Sequence[Report]) -> Iterator[Attention]:
    seen: set[str] = set()
    for report in reports:  # the newest first
        if report.name in seen:
            continue
        seen.add(report.name)
        if report.level == BAD:
            yield Attention(
                BAD,
                Ref("join", report.name),
                f"served values were not what a backfill computes: {share(report.share)} equal, "
                f"at least {share(report.threshold)} are wanted",
                link("consistency", name=report.name, run=report.run),
                "the report",
            )
