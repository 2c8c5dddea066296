from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))

from disks import Disk, small_disk
from jvm import JAVA_OPTIONS

ROOT = Path(__file__).parent.parent

# As many examples as each test says: `make test-long`.
settings.register_profile(
    "long",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# At most so many: `make test`.
settings.register_profile("windrow", settings.get_profile("long"), max_examples=6)
settings.register_profile(
    "no-shrink",
    settings.get_profile("windrow"),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
# A few of each: `make quick`.
settings.register_profile("quick", settings.get_profile("no-shrink"), max_examples=2)
SPARK_EXAMPLES = 3  # of a test that needs Spark, in `make test`
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "windrow")
settings.load_profile(PROFILE)

# What a test asks for says what it is. A test that starts Spark in any other way is an error in
# `make quick`, where there is no Java.
MARKS = {
    "spark": {"spark", "shared_cluster", "drivers", "interrupted", "example", "command"},
    "slow": {"shared_cluster", "drivers", "interrupted", "example", "command", "many", "processes"},
}


# A test runs each of its plans over a few rows: code that is generated for a whole stage takes
# longer to compile than it saves. Written queries, examples and clusters do have it.
QUICK_PLANS = {"spark__sql__codegen__wholeStage": "false"} if PROFILE != "long" else {}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of a test run."""
    from windrow.spark.jars import with_jars
    from windrow.spark.session import local_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        session = local_session("windrow-tests", cores="2", **QUICK_PLANS, **with_jars({}))
    yield session
    session.stop()


Example = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def example() -> Example:
    """Runs an example in a process of its own, with a Spark session of its own."""

    def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    return run


@pytest.fixture
def many() -> Callable[..., int]:
    """How often to repeat what a test does many times: a third of it, unless that is not enough, in
    `make test`, and just enough in `make quick`."""
    shares = {"long": 1, "quick": 10**9}
    return lambda times, enough=50: min(times, max(enough, times // shares.get(PROFILE, 3)))


@pytest.fixture
def stride() -> Callable[[int], int]:
    """From one place to the next, of many that are all alike; `make test-long` leaves out none."""
    return lambda places: 1 if PROFILE == "long" else places


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A small disk; where nobody may mount one, there is nothing that could be full."""
    try:
        with small_disk() as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(f"cannot mount a file system in memory: {error}")


# A process of its own: delta-rs may hold the interpreter's lock while it waits for the store, so
# a server in a thread of this process would never answer. It ends when its input is closed.
# One request at a time: moto looks whether an object is there, and then puts it, so that of two
# conditional puts at once both could succeed, which no object store lets happen.
S3_SERVER = """
import logging, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

class OneAtATime(DomainDispatcherApplication):
    turn = threading.Lock()

    def __call__(self, *args):
        with self.turn:
            return super().__call__(*args)

sys.modules["moto.moto_server.threaded_moto_server"].DomainDispatcherApplication = OneAtATime
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
BUCKET = "shards"


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    """Storage options of an S3 server on loopback that has one bucket.

    Nothing is said of conditional puts: delta-rs uses them (If-None-Match) unless told not to.
    """
    import boto3

    pipe = subprocess.PIPE
    command = [sys.executable, "-c", S3_SERVER]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        client = boto3.client(
            "s3",
            endpoint_url=options["AWS_ENDPOINT_URL"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield options
        server.communicate()


@pytest.fixture
def s3_uri(request: pytest.FixtureRequest) -> str:
    """A folder of the bucket that no other test has."""
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def command(tmp_path: Path) -> Example:
    """Runs a command in a process of its own, which may start Spark; temporary files are here."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "windrow.cli", *arguments]
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=300
        )

    return run


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the part cache of the tests out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDROW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, and put fast ones first: without Spark, with it, slow."""
    for item in items:
        for mark, fixtures in MARKS.items():
            if not fixtures.isdisjoint(getattr(item, "fixturenames", ())):
                item.add_marker(mark)
        if PROFILE != "long":
            most = settings().max_examples
            if item.get_closest_marker("spark"):
                most = min(most, SPARK_EXAMPLES)
            _bound_examples(getattr(item, "function", None), most)

    def rank(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("slow") is not None, "spark" in item.keywords

    items.sort(key=rank)


def _bound_examples(test: Any, most: int) -> None:
    """At most so many examples, also where a test says how many it wants."""
    if not getattr(test, "is_hypothesis_test", False):
        return
    given = "_hypothesis_internal_use_settings"
    wanted: settings = getattr(test, given, None) or settings()
    if wanted.max_examples > most:
        setattr(test, given, settings(wanted, max_examples=most))
