"""Arrangements: shards by key, named by what they hold, and shared by whoever needs the same."""
