"""Names of a project and what they stand for: rows at a time, changes, leaves of a query."""
