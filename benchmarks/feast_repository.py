"""A repository of Feast with the features of `online.py` in Redis; runs where Feast is installed.

    feast_repository.py FOLDER VALUES.parquet HOST:PORT

The values are written as Feast's users write them, with `write_to_online_store`.
"""

import sys
from datetime import timedelta
from pathlib import Path

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64

CONFIG = """
project: windrow
registry: {folder}/registry.db
provider: local
online_store:
  type: redis
  connection_string: "{address}"
entity_key_serialization_version: 3
"""
ROWS = 10_000  # written at a time


def main() -> None:
    folder, values, address = sys.argv[1:]
    Path(folder, "feature_store.yaml").write_text(CONFIG.format(folder=folder, address=address))
    store = FeatureStore(repo_path=folder)
    frame = pd.read_parquet(values)
    user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
    view = FeatureView(
        name="activity",
        entities=[user],
        ttl=timedelta(days=36_500),
        schema=[
            Field(name=name, dtype=Float64)
            for name in frame.columns
            if name not in ("user_id", "ts")
        ],
        source=FileSource(path=values, timestamp_field="ts"),
    )
    store.apply([user, view])
    for start in range(0, len(frame), ROWS):
        store.write_to_online_store("activity", frame.iloc[start : start + ROWS])


if __name__ == "__main__":
    main()
