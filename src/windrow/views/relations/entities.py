"""Relations of a project as sources of features: their histories, with the times of commits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from windrow.errors import RelationNotFoundError, SchemaError
from windrow.features.definitions import GroupBy, Join
from windrow.sources.definitions import EntitySource, Source
from windrow.storage.names import Anchored
from windrow.views.history.history import History
from windrow.views.relations.names import Relation
from windrow.views.relations.relations import Relations


def view_names(join: Join) -> list[str]:
    """The relations of the project that a join reads."""
    return [str(source.view) for source in _viewed(join)]


def over_shards(join: Join, relations: Relations, history: History) -> Join:
    """The same join over the collections of these relations, up to all that is committed."""
    found: dict[str, Relation] = {}
    for source in _viewed(join):
        name = str(source.view)
        relation = relations.get(name)
        if relation is None:
            raise RelationNotFoundError(
                f"{source.what}: there is no table, source or view {name!r} in the project; "
                f"{relations.hint(name)}"
            )
        found[name] = relation
    history.roll_forward({one.collection for one in found.values()})

    def over_shard(source: Source, group: GroupBy) -> Source:
        if not isinstance(source, EntitySource) or source.view is None:
            return source
        relation = found[source.view]
        _check_types(source, group, relation)
        uri = history.collection(relation.collection).store.uri
        shown = Anchored(uri, f"{relation.kind} {relation.name}")
        return replace(source, view=None, shard=shown)

    groups = []
    for joined in join.all_groups:
        sources = [over_shard(source, joined.group) for source in joined.group.sources]
        group = replace(joined.group, source=sources if len(sources) > 1 else sources[0])
        groups.append(replace(joined, group=group))
    return replace(join, features=groups)


def _viewed(join: Join) -> Iterator[EntitySource]:
    for joined in join.all_groups:
        for source in joined.group.sources:
            if isinstance(source, EntitySource) and source.view is not None:
                yield source


def _check_types(source: EntitySource, group: GroupBy, relation: Relation) -> None:
    """Refuse columns that are stored as another type than queries see, if they are used."""
    storable = relation.storable
    texts = [text for _, text in source.selected] or [*group.keys, *_aggregated(group)]
    used = set(re.findall(r"\w+", " ".join([source.time, source.where or "", *texts]).lower()))
    for field, kept in zip(storable.schema, storable.columns, strict=True):
        if kept.back is not None and field.name.lower() in used:
            raise SchemaError(
                f"{source.what}: column {field.name!r} of {relation.kind} {relation.name} has the "
                f"type {field.dataType.simpleString()}, which features cannot read; make a "
                "materialized view that casts it, and read that"
            )


def _aggregated(group: GroupBy) -> list[str]:
    """What the aggregations of a group read: columns, and conditions."""
    found: list[str] = []
    for one in group.aggregations:
        found += [text for text in (one.column, one.bucket, one.condition) if text is not None]
    return found
