"""What a project serves: uploads of joins and groups, following their shards, and fetching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from windrow.errors import DefinitionError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.features.inputs.groups import GroupInputs, check_keys
from windrow.features.inputs.queries import QueryInputs
from windrow.features.strategies.group_events import feature_fields
from windrow.online.deriving import derive_online
from windrow.online.follow import Followed, Follower
from windrow.online.generations import sweep
from windrow.online.plans import ServedGroupUse, ServedJoin, join_note, version_of
from windrow.online.publish import views_in
from windrow.online.stores.store import RecordStore
from windrow.online.upload import Uploaded, serve_group, upload_group
from windrow.spark.progress import Progress
from windrow.spark.session import Engine
from windrow.spark.stages import Stages
from windrow.storage.names import digest
from windrow.storage.store import Store

Resolve = Callable[[GroupBy], GroupBy]  # a group over shards, in place of streams and views


@dataclass(frozen=True)
class Serving:
    """The online side of a project: its definitions come from outside, its records are here."""

    engine: Engine
    root: Store
    records: RecordStore
    resolve: Resolve
    progress: Progress

    def upload(self, served: Sequence[Join | GroupBy], as_of: int | None) -> list[Uploaded]:
        """Write the records of all online groups of these, and serve them."""
        groups = _online_groups(served)
        joins = [one for one in served if isinstance(one, Join)]
        views = set(views_in(self.records))
        for name in (*groups, *(join.name for join in joins)):
            if name in views:
                raise DefinitionError(
                    f"{name!r} is the name of a view or table that is served; rename one of them, "
                    "or UNSET its property 'online'"
                )
        # What cannot be served is refused before anything is written.
        planned = [self._served_join(join) for join in joins]
        found = []
        for group in groups.values():
            resolved = self.resolve(group)
            stages = Stages(self.engine, self.root, self.progress)
            found.append(upload_group(stages, resolved, self.records, as_of))
            self.follower([resolved]).follow()
            sweep(self.records, group.name)
        for plan in planned:
            self._write(plan)
        return found

    def _write(self, plan: ServedJoin) -> None:
        raw = plan.written()
        self.records.change_note(join_note(plan.name), lambda _: raw)

    def follower(self, groups: Iterable[GroupBy]) -> Follower:
        """Follows the shards of these groups' sources; they are resolved already."""
        return Follower(self.engine, self.root, self.records, list(groups))

    def follow(self, groups: Iterable[GroupBy], source: str | None = None) -> list[Followed]:
        return self.follower([self.resolve(group) for group in groups]).follow(source)

    def version(self, definition: Join | GroupBy) -> str:
        """The version that a definition would be served under, as it is now."""
        joined = [JoinedGroup(definition)] if isinstance(definition, GroupBy) else []
        if isinstance(definition, Join):
            joined = [one for one in definition.all_groups if one.group.online]
        groups = []
        for one in joined:
            resolved = self.resolve(one.group)
            inputs = GroupInputs.bind(resolved, self.engine, self.root.options_dict)
            groups.append(serve_group(resolved, inputs))
        if isinstance(definition, GroupBy):
            return f"{groups[0].digest:015x}"
        return version_of(self._served_join(definition), groups)

    def _served_join(self, join: Join) -> ServedJoin:
        """A join as it will be served; a DefinitionError if it cannot be."""
        options = self.root.options_dict
        queries = QueryInputs.bind(join, self.engine, None, None, options)
        uses, fields = [], []
        for joined in join.all_groups:
            if not joined.group.online:
                continue
            resolved = JoinedGroup(self.resolve(joined.group), joined.mapping, joined.prefix)
            inputs = GroupInputs.bind(resolved.group, self.engine, options)
            check_keys(resolved, queries.schema, inputs.layout.key_types)
            made = feature_fields(resolved, inputs.layout)
            fields += made
            names = tuple(field.name for field in made)
            uses.append(ServedGroupUse(joined.group.name, joined.left_keys, names))
        derived = derive_online(self.engine, join, pa.schema(fields), queries.schema)
        version = digest([(u.group, u.left_keys, u.names) for u in uses], derived.to_json())
        return ServedJoin(join.name, tuple(uses), derived, version)


def _online_groups(served: Sequence[Join | GroupBy]) -> dict[str, GroupBy]:
    """The groups to upload, by name: a name stands for one definition."""
    found: dict[str, GroupBy] = {}
    joins = {one.name for one in served if isinstance(one, Join)}
    for one in served:
        groups = [one] if isinstance(one, GroupBy) else [g.group for g in one.all_groups]
        for group in groups:
            if isinstance(one, Join) and not group.online:
                continue
            if group.name in joins:
                raise DefinitionError(
                    f"{group.name!r} is the name of a join and of a group; what is fetched by it "
                    "would be one or the other. Rename one of them"
                )
            if found.setdefault(group.name, group) != group:
                raise DefinitionError(f"GroupBy {group.name!r} is defined twice, differently")
    if not found:
        raise DefinitionError("there is nothing to serve: every group has online=False")
    return found
