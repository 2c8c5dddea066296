"""The plan of a view: operators as data, what each keeps, and why it was chosen."""
