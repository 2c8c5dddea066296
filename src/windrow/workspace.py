"""A project folder: `windrow.toml`, the definitions it names, and where their tables are.

A `Project` in Python is given its joins; a command has only a folder. Here a folder becomes joins
with names, so that every command finds the same definitions in the same way, and every mistake in
them is reported with its file and line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from windrow.algebra.windows import default_hops
from windrow.errors import DefinitionError, OptionError, WindrowError
from windrow.features.definitions import GroupBy, Join, JoinedGroup
from windrow.project import Project
from windrow.sources.definitions import Source
from windrow.sources.streams import FolderStream, KafkaStream
from windrow.sources.tables import is_path
from windrow.spark.jars import with_jars
from windrow.spark.session import Engine, local_session
from windrow.spark.start import start_spark
from windrow.storage.names import Anchored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = "windrow.toml"
_KEYS = ("root", "definitions", "storage_options", "spark", "hops", "online")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_TABLES = ("table", "snapshots", "mutations", "changes", "shard")  # fields that name tables

_Side = TypeVar("_Side")


@dataclass(frozen=True)
class Settings:
    """What `windrow.toml` says."""

    root: str
    definitions: tuple[str, ...]
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)  # has secrets
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have some
    hops: Mapping[str, str] | None = None
    online: str | None = field(default=None, repr=False)  # may hold a password

    @staticmethod
    def read(file: Path) -> Settings:
        """Read and check the file; everything in it is optional but `definitions`."""
        try:
            found = tomllib.loads(file.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise OptionError(f"{file} is not TOML: {error}") from error
        for key in found:
            if key not in _KEYS:
                raise OptionError(f"{file}: there is no setting {key!r}; {_hint(key, _KEYS)}")
        _refuse_nul(found, str(file))
        root = found.get("root", "state")
        if not isinstance(root, str) or not root.strip():
            raise OptionError(f"{file}: root is {root!r}; give a folder or URI, such as 'state'")
        definitions = found.get("definitions")
        if (
            not isinstance(definitions, list)
            or not definitions
            or not all(isinstance(name, str) for name in definitions)
        ):
            raise OptionError(
                f"{file}: definitions is {definitions!r}; list Python files, such as "
                "definitions = ['features.py']"
            )
        options = _texts(found.get("storage_options", {}), f"{file}: [storage_options]")
        spark = _texts(_flat(found.get("spark", {})), f"{file}: [spark]")
        for name in spark:
            if not name.startswith("spark."):  # Spark itself would say nothing
                raise OptionError(
                    f"{file}: [spark]: there is no {name!r}; write the whole name, such as "
                    f"'spark.{name}'"
                )
        hops = _texts(found["hops"], f"{file}: [hops]") if "hops" in found else None
        try:
            with default_hops(hops or {}):
                pass
        except DefinitionError as error:
            raise OptionError(f"{file}: [hops]: {error}") from error
        online = found.get("online")
        if online is not None and (not isinstance(online, str) or not online.strip()):
            raise OptionError(
                f"{file}: online is {_kind(online)}; give a folder, or the URL of a Redis server"
            )
        return Settings(root, tuple(definitions), options, spark, hops, online)


@dataclass(frozen=True)
class Workspace:
    """A project folder with its definitions, by name. Table paths in them are absolute."""

    folder: Path
    settings: Settings
    joins: Mapping[str, Join]
    groups: Mapping[str, GroupBy]
    sources: Mapping[str, Source]

    @staticmethod
    def find(folder: str | Path | None = None) -> Path:
        """The project folder: `folder`, or else the nearest upward with a `windrow.toml`."""
        if folder is not None:
            given = Path(folder).resolve()
            if not (given / SETTINGS).is_file():
                raise OptionError(
                    f"{given} holds no {SETTINGS}; name a project folder, or make one with "
                    "`windrow init FOLDER`"
                )
            return given
        here = Path.cwd()
        for place in (here, *here.parents):
            if (place / SETTINGS).is_file():
                return place
        raise OptionError(
            f"there is no {SETTINGS} in {here} or above it; go to a project folder, name one "
            "with --project, or make one with `windrow init FOLDER`"
        )

    @staticmethod
    def load(folder: str | Path) -> Workspace:
        """Read the settings of a project folder and run its definition files, in that folder."""
        place = Workspace.find(folder)
        settings = Settings.read(place / SETTINGS)
        found = _Definitions()
        given = settings.hops
        hops = contextlib.nullcontext() if given is None else default_hops(given)
        with _importing_from(place), hops:
            for name in settings.definitions:
                found.add_module(_run_file(place, name), name)
        joins = {name: _anchored_join(join, place) for name, join in found.joins.items()}
        sources = {name: _anchored(one, place) for name, one in found.sources.items()}
        groups = {name: _anchored_group(one, place) for name, one in found.groups.items()}
        return Workspace(place, settings, joins, groups, sources)

    @property
    def root(self) -> str:
        """The state root: a URI, or an absolute path."""
        root = self.settings.root
        return root if _is_uri(root) else Anchored(str(self.folder / root), root)

    def join(self, name: str) -> Join:
        """The join of this name, or an error that tells which there are."""
        if name not in self.joins:
            self._require_joins()
            raise DefinitionError(
                f"there is no join {name!r} in {self.folder}; {_hint(name, self.joins)}"
            )
        return self.joins[name]

    def joins_named(self, name: str | None) -> list[Join]:
        """The join of this name; without a name all joins, at least one."""
        if name is not None:
            return [self.join(name)]
        self._require_joins()
        return list(self.joins.values())

    def result_uri(self, join: Join) -> str:
        """Where a backfill of `join` puts its result."""
        return f"{self.root.rstrip('/')}/results/{join.name}"

    def project(self, *, progress: bool | None = None) -> Project:
        """The project at this folder's root; its Spark, as `[spark]` says, starts when needed."""
        return Project(
            self.root,
            spark=Engine(start=self._session, master=self._master),
            storage_options=self.settings.storage_options or None,
            progress=progress,
            online=self.online,
        )

    @property
    def online(self) -> str | None:
        """Where records are served from: a URL, or a folder from this one; None: the default."""
        address = self.settings.online
        if address is None or _is_uri(address):
            return address
        return str(self.folder / address)

    @property
    def _master(self) -> str:
        return self.settings.spark.get("spark.master", "local[*]")

    def _session(self) -> SparkSession:
        settings = dict(self.settings.spark)
        if any(isinstance(source.stream, KafkaStream) for source in self.sources.values()):
            settings = with_jars(settings)
        return start_spark(lambda: local_session("windrow", **settings))

    def streamed(self, names: Sequence[str] = ()) -> list[Source]:
        """The sources of these names, all with a stream; without names, all that have one."""
        for name in names:
            if name not in self.sources:
                known = [one for one, source in self.sources.items() if source.stream]
                raise DefinitionError(
                    f"there is no source {name!r} in {self.folder}; {_hint(name, known)}"
                )
            if self.sources[name].stream is None:
                raise DefinitionError(
                    f"source {name!r} has no stream; give it one, such as "
                    "stream=wr.FolderStream('arriving')"
                )
        chosen = names or [name for name, source in self.sources.items() if source.stream]
        if not chosen:
            raise DefinitionError(
                f"{self.folder}: no source has a stream; give one, such as "
                "EventSource(..., stream=wr.FolderStream('arriving'))"
            )
        return [self.sources[name] for name in chosen]

    def _require_joins(self) -> None:
        if not self.joins:
            files = ", ".join(self.settings.definitions)
            raise DefinitionError(
                f"{self.folder}: no join is defined in {files}; add one, such as "
                "training = windrow.Join(name='training', ...)"
            )


@dataclass
class _Definitions:
    """Definitions by name; of two with one name, neither can be meant."""

    joins: dict[str, Join] = field(default_factory=dict)
    groups: dict[str, GroupBy] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    files: dict[tuple[str, str], str] = field(default_factory=dict)

    def add_module(self, module: ModuleType, file: str) -> None:
        for value in list(vars(module).values()):
            for one in _spread(value):
                self._add(one, file)

    def _add(self, value: Any, file: str) -> None:
        if isinstance(value, JoinedGroup):
            self._add(value.group, file)
        elif isinstance(value, Source):
            self._keep("source", value, self.sources, file)
        elif isinstance(value, GroupBy):
            self._keep("GroupBy", value, self.groups, file)
            for source in value.sources:
                self._add(source, file)
        elif isinstance(value, Join):
            self._keep("Join", value, self.joins, file)
            for group in value.all_groups:
                self._add(group, file)

    def _keep(self, kind: str, value: Any, known: dict[str, Any], file: str) -> None:
        name = value.name
        if known.setdefault(name, value) is not value:
            other = self.files[kind, name]
            where = f"twice in {file}" if other == file else f"in {other} and in {file}"
            raise DefinitionError(
                f"{kind} {name!r} is defined {where}; rename one, or import the one that is meant"
            )
        self.files.setdefault((kind, name), file)


def _spread(value: Any) -> Iterator[Any]:
    """A value of a module; of a list or dict, its values: definitions may be made in a loop."""
    if isinstance(value, dict):
        yield from list(value.values())
    elif isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _run_file(folder: Path, name: str) -> ModuleType:
    """Run a definition file as a module; what goes wrong in it is told with its place."""
    file = (folder / name).resolve()
    if not file.is_file():
        raise OptionError(
            f"{folder / SETTINGS}: definitions names {name!r}, but there is no such file"
        )
    stem = file.stem
    known = sys.modules.get(stem)
    if known is not None and _is_at(known, file):
        return known  # another definition file has imported it
    # Under its own name, so that other files can import it; never in place of a library.
    module_name = stem if known is None else f"_windrow_definitions_{stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise OptionError(f"{folder / SETTINGS}: definitions names {name!r}; give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() too: it would end the command in silence
        raise _misdefined(folder, file, error) from error
    return module


def _is_at(module: ModuleType, file: Path) -> bool:
    found = getattr(module, "__file__", None)
    return found is not None and Path(found).resolve() == file


def _misdefined(folder: Path, file: Path, error: BaseException) -> DefinitionError:
    """The error of a definition file, at the last line of the project that was running."""
    place, line = str(file), 0
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).is_relative_to(folder):
            place, line = frame.filename, frame.lineno or 0
    message = str(error)
    if isinstance(error, SyntaxError):
        place, line, message = error.filename or place, error.lineno or line, error.msg
    shown = message if isinstance(error, WindrowError) else f"{type(error).__name__}: {message}"
    if isinstance(error, SystemExit):
        shown = f"the file exits, with {message or 0!s}; a definition file is run to its end"
    return DefinitionError(f"{place}, line {line}: {shown}")


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Work in `folder` and import from it; its modules are forgotten afterwards.

    A process may load several projects, each with a `features.py` of its own. No bytecode is
    written: Python would take an old one for a file that changed within a second.
    """
    before, writes_bytecode = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.dont_write_bytecode = writes_bytecode
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            found = getattr(sys.modules[name], "__file__", None)
            if found is not None and Path(found).is_relative_to(folder):
                del sys.modules[name]


def _anchored(side: _Side, folder: Path) -> _Side:
    """A source or queries, with paths from `folder`: Spark may have been started elsewhere."""
    found: Any = side
    for name in _TABLES:
        table = getattr(found, name, None)
        if isinstance(table, str | os.PathLike):
            text = os.fspath(table)
            is_file = name == "shard" or is_path(text)
            if is_file and not _is_uri(text) and "`" not in text:  # parquet.`path` is Spark's
                found = replace(found, **{name: Anchored(str(folder / text), text)})
    stream = getattr(found, "stream", None)
    if isinstance(stream, FolderStream) and not _is_uri(text := os.fspath(stream.path)):
        place = Anchored(str(folder / text), text)
        found = replace(found, stream=replace(stream, path=place))
    return found  # type: ignore[no-any-return]


def _anchored_group(group: GroupBy, folder: Path) -> GroupBy:
    sources = [_anchored(source, folder) for source in group.sources]
    return replace(group, source=sources if len(sources) > 1 else sources[0])


def _anchored_join(join: Join, folder: Path) -> Join:
    groups = [replace(g, group=_anchored_group(g.group, folder)) for g in join.all_groups]
    return replace(join, left=_anchored(join.left, folder), features=groups)


def _is_uri(text: str) -> bool:
    return _URI.match(text) is not None


def _flat(values: Any, prefix: str = "") -> Any:
    """Spark's dotted names: TOML reads `spark.sql.ansi.enabled = true` as nested tables."""
    if not isinstance(values, dict):
        return values
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _refuse_nul(value: Any, where: str) -> None:
    """No file, and no setting of Spark or a store, can have this character in its name."""
    if isinstance(value, str) and "\0" in value:
        raise OptionError(f"{where} has a NUL character (\\u0000) in a value; take it out")
    if isinstance(value, dict):
        for key, one in value.items():
            _refuse_nul(key, where)
            _refuse_nul(one, f"{where}: {key}" if "\0" not in key else where)
    if isinstance(value, list):
        for one in value:
            _refuse_nul(one, where)


def _texts(values: Any, what: str) -> dict[str, str]:
    """Options as text; TOML's numbers and booleans are written as Spark and stores do.

    Errors do not show values: they may be secrets.
    """
    if not isinstance(values, dict):
        raise OptionError(f"{what} is {_kind(values)}; it has to be a table of names and values")
    written: dict[type, Callable[[Any], str]] = {
        str: str,
        int: str,
        float: str,
        bool: lambda value: str(value).lower(),
    }
    for name, value in values.items():
        if type(value) not in written:
            raise OptionError(f"{what}: {name} is {_kind(value)}; give a text, number or boolean")
    return {name: written[type(value)](value) for name, value in values.items()}


def _kind(value: Any) -> str:
    """What a value of TOML is, in words."""
    kinds = {str: "a text", list: "a list", dict: "a table", bool: "a boolean"}
    kinds |= {int: "a number", float: "a number"}
    return kinds.get(type(value), "a date or time")


def _hint(name: str, known: Any) -> str:
    names = list(known)
    close = get_close_matches(name, names, n=1)
    there = f"here are: {', '.join(names)}"
    return f"did you mean {close[0]!r}? T{there}" if close else f"t{there}"
