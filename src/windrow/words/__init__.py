"""Sorting, merging and consolidating updates: the compiled core.

Rows are compared by *words*: an int64 array of shape (w, n), one column per row, compared from
the first word to the last. Rows that are equal have equal words; rows with equal words are
nearly always equal, and are compared value by value before they are treated as one.
"""
