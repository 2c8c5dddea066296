"""Groups and queries bound to their tables: columns and types are known, nothing is read."""
