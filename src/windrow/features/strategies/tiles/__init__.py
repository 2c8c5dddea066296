"""The tiles strategy: states over hops of time, kept for large keys, and windows made of them."""
