"""What the commands do, one module each: called by `windrow.cli`, and by whoever wants the same.

They print for people, on standard output; what they work with comes from a `Workspace`.
"""
