"""Sources of rows: tables, files and DataFrames."""
