"""Asks a server for features through Feast's own client; runs where Feast is installed.

`feast_client.py FOLDER ADDRESS [TOKEN]` makes a repository in FOLDER, as a user of Feast would, and
prints what `get_online_features` returns, as JSON.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

from feast import Entity, FeatureService, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64, Int64, String

CONFIG = """
project: windrow
registry: {folder}/registry.db
provider: local
online_store:
  type: remote
  path: {address}
  connection_retries: 0
auth:
  type: {auth}
entity_key_serialization_version: 3
"""


def store(folder: Path, address: str, token: str | None) -> FeatureStore:
    auth = "no_auth" if token is None else f"oidc\n  token: {token}"
    (folder / "feature_store.yaml").write_text(
        CONFIG.format(folder=folder, address=address, auth=auth)
    )
    found = FeatureStore(repo_path=str(folder))
    source = FileSource(path=str(folder / "none.parquet"), timestamp_field="ts")
    user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
    listing = Entity(name="listing", join_keys=["listing"], value_type=ValueType.STRING)
    price = Entity(name="price", join_keys=["price"], value_type=ValueType.DOUBLE)
    row = Entity(name="row", join_keys=["row"], value_type=ValueType.INT64)
    views = [
        view("activity", [user], source, {"price_avg_1d": Float64, "price_avg_2d": Float64}),
        view(
            "training",
            [user, listing, price],
            source,
            {"views": Int64, "stars": Float64, "against_usual": Float64},
        ),
        view("types", [row], source, {"whole": Int64, "text": String, "real": Float64}),
    ]
    service = FeatureService(name="training", features=[views[1]])
    found.apply([user, listing, price, row, *views, service])
    return found


def view(name, entities, source, features):
    return FeatureView(
        name=name,
        entities=entities,
        ttl=timedelta(days=1),
        schema=[Field(name=feature, dtype=dtype) for feature, dtype in features.items()],
        source=source,
        online=True,
    )


def main() -> None:
    folder, address = Path(sys.argv[1]), sys.argv[2]
    feast = store(folder, address, sys.argv[3] if len(sys.argv) > 3 else None)
    users = [{"user_id": 3}, {"user_id": -1}, {"user_id": 7}]
    rows = [{"user_id": 3, "listing": "ab", "price": 2.5}]
    answers = {
        "one view": feast.get_online_features(
            features=["activity:price_avg_1d", "activity:price_avg_2d"], entity_rows=users
        ),
        "two views": feast.get_online_features(
            features=["activity:price_avg_1d", "training:views"],
            entity_rows=rows,
            full_feature_names=True,
        ),
        "a service": feast.get_online_features(
            features=feast.get_feature_service("training"), entity_rows=rows
        ),
        "types": feast.get_online_features(
            features=["types:whole", "types:text"], entity_rows=[{"row": 0}, {"row": 2}]
        ),
    }
    found = {name: answer.to_dict() for name, answer in answers.items()}
    try:
        feast.get_online_features(features=["nothing:x"], entity_rows=users)
    except Exception as error:
        found["unknown"] = type(error).__name__
    print(json.dumps(found))


if __name__ == "__main__":
    main()
