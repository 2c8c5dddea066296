"""Features of one slice: Arrow in, Arrow out. No Spark, no files."""
