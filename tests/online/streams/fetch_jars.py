"""Fetches the jars that tests of streams need, as far as they are not there."""

from __future__ import annotations

from kafka_broker import BROKER, broker_folder, has_broker
from postgres import DEBEZIUM, debezium_folder, has_debezium

from windrow.errors import WindrowError
from windrow.spark.jars import fetch, jar_files


def main() -> None:
    try:
        if not jar_files():
            fetch()
        if not has_broker():
            fetch(BROKER, broker_folder(), transitive=True)
        if not has_debezium():
            fetch(DEBEZIUM, debezium_folder(), transitive=True)
    except WindrowError as error:
        print(f"tests of Kafka are left out: {error}")


if __name__ == "__main__":
    main()
