"""Spark's connector to Kafka, and what it needs: jars in a folder of the user's cache.

    WINDROW_JARS, or ~/.cache/windrow/jars

They are fetched with Maven, whose settings say from where. Versions are pinned together: the
connector is published later than Spark itself, and one of its parts later still.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from windrow.errors import WindrowError

FOLDER = "WINDROW_JARS"  # of the environment
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def jar_folder() -> Path:
    found = os.environ.get(FOLDER)
    return Path(found) if found else Path.home() / ".cache" / "windrow" / "jars"


def jar_files() -> list[Path]:
    """The jars, in their folder; empty if one of them is missing."""
    files = [jar_folder() / f"{name}-{version}.jar" for _, name, version in JARS]
    return files if all(file.is_file() for file in files) else []


def with_jars(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session that reads Kafka; unless they name jars of their own."""
    named = {"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"} & set(settings)
    files = jar_files()
    if named or not files:
        return dict(settings)
    return {**settings, "spark.jars": ",".join(map(str, files))}


def pom(jars: tuple[tuple[str, str, str], ...], *, transitive: bool = False) -> str:
    """What Maven is to fetch; not `transitive`, nothing that these need besides."""
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = "" if transitive else f"{without}</exclusions>"
    needed = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{without}</dependency>"
        for group, name, version in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>windrow</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{needed}\n</dependencies></project>\n"
    )


def fetch(
    jars: tuple[tuple[str, str, str], ...] = JARS,
    folder: Path | None = None,
    *,
    transitive: bool = False,
) -> Path:
    """Fetch jars into a folder, by default the one where sessions look for them."""
    target = jar_folder() if folder is None else folder
    maven = shutil.which("mvn")
    if maven is None:
        named = ", ".join(f"{name}-{version}.jar" for _, name, version in jars)
        raise WindrowError(
            f"Maven (mvn) is not there to fetch jars; install it, or put {named} into {target}"
        )
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="windrow-jars-") as place:
        Path(place, "pom.xml").write_text(pom(jars, transitive=transitive))
        command = [maven, "-B", "-q", _PLUGIN, "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={target.resolve()}")
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    if done.returncode:
        lines = [one for one in done.stdout.splitlines() if "ERROR" in one] or [done.stderr.strip()]
        raise WindrowError(f"Maven could not fetch the jars: {lines[0]}")
    return target
