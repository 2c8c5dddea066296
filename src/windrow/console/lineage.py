"""Lineage: what is made of what, as a graph of all things of a project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from windrow.console.attention import Attention
from windrow.console.catalogue import Catalogue
from windrow.console.layers import Drawn, laid_out
from windrow.console.refs import Ref
from windrow.sources.definitions import EntitySource

MOST = 60  # nodes of a drawing


@dataclass(frozen=True)
class Node:
    """A thing of the project, with what is said of it in a drawing."""

    ref: Ref
    title: str
    about: str

    @property
    def id(self) -> str:
        return self.ref.id


@dataclass(frozen=True)
class Graph:
    """Nodes by id, and edges from what is read to what is made of it."""

    nodes: Mapping[str, Node]
    edges: tuple[tuple[str, str], ...]

    def near(self, id: str, most: int = MOST) -> Graph:
        """What a node is made of, and what is made of it: the nearest first, up to `most`."""
        before: dict[str, list[str]] = {}
        after: dict[str, list[str]] = {}
        for start, end in self.edges:
            after.setdefault(start, []).append(end)
            before.setdefault(end, []).append(start)
        found = {id: None}
        up, down = [id], [id]
        while (up or down) and len(found) < most:
            up = [b for node in up for b in before.get(node, ())]
            down = [a for node in down for a in after.get(node, ())]
            up, down = (list(dict.fromkeys(n for n in s if n not in found)) for s in (up, down))
            for node in [*up, *down][: most - len(found)]:
                found[node] = None
            up, down = ([n for n in s if n in found] for s in (up, down))
        return self.only(found)

    def only(self, ids: Iterable[str]) -> Graph:
        """The part of it that has these nodes."""
        kept = set(ids)
        nodes = {id: node for id, node in self.nodes.items() if id in kept}
        edges = tuple(one for one in self.edges if one[0] in kept and one[1] in kept)
        return Graph(nodes, edges)

    def drawn(self) -> Drawn:
        """Laid out from left to right."""
        return laid_out(list(self.nodes), self.edges)


def lineage(catalogue: Catalogue, *, arrangements: bool = True) -> Graph:
    """The graph of a project; arrangements stand between what they hold and who uses them."""
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str], None] = {}

    def add(ref: Ref, title: str, about: str) -> str:
        nodes.setdefault(ref.id, Node(ref, title, about))
        return ref.id

    relations = {
        name: add(one.ref, name, one.kind) for name, one in sorted(catalogue.relations.items())
    }
    for name, one in catalogue.relations.items():
        for read in one.inputs:
            if read in relations:
                edges[relations[read], relations[name]] = None
    if arrangements:
        _arrangements_of_views(catalogue, add, relations, edges)
    sources = {}
    for name, source in sorted(catalogue.sources.items()):
        about = "stream" if source.stream is not None else "source"
        sources[name] = add(Ref("source", name), name, about)
        if isinstance(source, EntitySource) and source.view in relations:
            edges[relations[source.view], sources[name]] = None
    store = None
    if catalogue.store is not None:
        store = add(Ref("store", "records"), "online store", "store")
    joined = set(catalogue.joins_of)
    for name, group in sorted(catalogue.groups.items()):
        id = add(group.ref, name, f"group, {len(group.features)} features")
        for source_name in group.sources:
            if source_name not in sources:  # known from what is served alone
                sources[source_name] = add(Ref("source", source_name), source_name, "source")
            edges[sources[source_name], id] = None
        if group.current is not None and store is not None and name not in joined:
            edges[id, store] = None
    for name, join in sorted(catalogue.joins.items()):
        id = add(join.ref, name, "join")
        for group_name in join.groups:
            if group_name in catalogue.groups:
                edges[catalogue.groups[group_name].ref.id, id] = None
        if join.served is not None and store is not None:
            edges[id, store] = None
    if arrangements:
        _arrangements_of_features(catalogue, add, sources, edges)
    return Graph(nodes, tuple(edges))


def _arrangements_of_views(
    catalogue: Catalogue,
    add: Callable[[Ref, str, str], str],
    relations: Mapping[str, str],
    edges: dict[tuple[str, str], None],
) -> None:
    """Those that several views share: one that a view has for itself is on its own page."""
    users: dict[str, dict[str, str]] = {}
    for name, one in catalogue.relations.items():
        for kept in one.definition.get("keeps") or ():
            if kept["operator"] >= 0:
                users.setdefault(kept["collection"], {})[name] = str(kept["what"])
    for collection, views in users.items():
        if len(views) < 2:
            continue
        what = next(iter(views.values()))
        id = add(Ref("arrangement", collection), what, "arrangement")
        of = what.removeprefix("rows of ")
        if of in relations:
            edges[relations[of], id] = None
        for view in views:
            edges[id, relations[view]] = None


def _arrangements_of_features(
    catalogue: Catalogue,
    add: Callable[[Ref, str, str], str],
    sources: Mapping[str, str],
    edges: dict[tuple[str, str], None],
) -> None:
    for one in catalogue.arrangements:
        named = {user.rpartition(" of ")[2] for user, _ in one.users}
        names = [name.strip() for name in one.title.split(",")]
        groups = [
            group
            for group in catalogue.groups.values()
            if set(group.keys) == set(one.key)
            and set(group.sources) & set(names)
            and (group.name in named or named & set(catalogue.joins_of.get(group.name, ())))
        ]
        if not groups:
            continue
        title = f"{one.title} by {', '.join(one.key)}"
        id = add(one.ref, title, "arrangement")
        for group in groups:
            for name in group.sources:
                if name in names:
                    edges.pop((sources[name], group.ref.id), None)
                    edges[sources[name], id] = None
            edges[id, group.ref.id] = None


def health_of(attention: Sequence[Attention]) -> dict[str, str]:
    """The worst that is said of each thing, by id."""
    found: dict[str, str] = {}
    for one in attention:
        for ref in (one.about, *one.also, *one.causes):
            if found.get(ref.id) != "bad":
                found[ref.id] = one.level
    return found
