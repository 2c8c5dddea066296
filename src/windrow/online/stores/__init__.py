"""Stores: where records rest. LMDB on one machine, Redis for many."""
