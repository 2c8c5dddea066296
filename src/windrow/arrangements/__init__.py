"""Arrangements: shards by key, named by what they hold, and shared by whoever needs the same."""

from windrow.arrangements.catalogue import Entry, User, entries
from windrow.arrangements.reading import Arrangement, cut_alike

__all__ = ["Arrangement", "Entry", "User", "cut_alike", "entries"]
