"""What the commands do, one module each: called by `windrow.cli`, or from Python.

They print for people, on standard output; they work on a `Workspace`.
"""
