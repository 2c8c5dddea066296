"""Where rows come from: tables, files and DataFrames."""
