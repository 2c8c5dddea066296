"""What Windrow asks of Spark: a session, schemas, errors, tasks and their reports."""
