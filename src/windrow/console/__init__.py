"""The console: a project in a web browser, read from its logs and stores, without Spark."""
