"""Features of a garden shop: will a checkout be returned?"""

import windrow as wr
from windrow import agg

# Events: what happened, each with its time. New ones arrive as files; `windrow stream` takes
# them in. Paths are relative to this folder.
views = wr.EventSource(
    name="views",
    table="data/views",
    time="ts",
    partition="ds",
    stream=wr.FolderStream("arriving/views"),
)
# Rows that change: a buyer may withdraw a rating, or change it. Here are the changes.
ratings = wr.EntitySource(
    name="ratings",
    changes="data/ratings",
    time="ts",
    stream=wr.FolderStream("arriving/ratings"),
)

# What a user has been looking at.
activity = wr.GroupBy(
    name="activity",
    source=views,
    keys=["user_id"],
    aggregations=[
        agg.count("view_id").over("1h", "7d"),
        agg.unique_count("listing_id").over("7d"),
        agg.avg("price").over("7d"),
        agg.last_k("listing_id", 3).over("14d"),
        agg.count("view_id").over("7d").by("category"),
    ],
)

# How much a listing is looked at.
interest = wr.GroupBy(
    name="interest",
    source=views,
    keys=["listing_id"],
    aggregations=[
        agg.count("view_id").over("1d", kind="sliding"),
        agg.min("price").over("14d"),
        agg.max("price"),  # lifetime
    ],
)

# What buyers think of a listing.
reputation = wr.GroupBy(
    name="reputation",
    source=ratings,
    keys=["listing_id"],
    aggregations=[
        agg.count("stars"),
        agg.avg("stars").over("14d"),
        agg.histogram("stars").over("14d"),
    ],
)

# Every checkout, with the features as they were at its time. `returned` is the label.
training = wr.Join(
    name="training",
    left=wr.Queries(table="data/checkouts", time="ts"),
    features=[activity.on(user_id="buyer_id"), interest, reputation],
    derive={"price_against_usual": "price / activity_price_avg_7d"},
)
