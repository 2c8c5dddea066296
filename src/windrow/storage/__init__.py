"""Where things rest: a folder or an object store; names, records, leases, folders of work."""
