"""Running the plan of a view: Spark computes, compiled code finds and keeps what changed."""
