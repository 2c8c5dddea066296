"""What Windrow needs of Spark: a session, schemas, errors, tasks and their reports."""
