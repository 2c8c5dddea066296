"""Where things rest: a folder or an object store, names and digests, folders of work under way."""
