"""Where things are stored: a folder or an object store; names, records, leases, folders of work."""
