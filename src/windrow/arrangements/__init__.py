"""Arrangements: shards by key, named by their content, and shared by all who need the same."""

from windrow.arrangements.catalogue import Entry, User, entries
from windrow.arrangements.reading import Arrangement, cut_alike

__all__ = ["Arrangement", "Entry", "User", "cut_alike", "entries"]
