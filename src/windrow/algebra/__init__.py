"""What each aggregate is, how it is evaluated over ranges and spans, and its states; windows."""
