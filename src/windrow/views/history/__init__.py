"""The history of a project: one log of commits, and the collections of rows that they add up to."""
