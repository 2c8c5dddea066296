"""How states hold values: as counters, exact sums, the best k, values with counts, sketches."""
