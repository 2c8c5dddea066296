"""The serving log: what was served, with keys, times and versions, in tables of the project.

    served/NAME/VERSION    a row for each key of each logged request (see `columns`)
    served/NAME/counts     how many requests there were, were logged, left out and lost (`counts`)

A request hands its answer over and goes on. A thread turns answers into Arrow and appends them to
Delta tables; what it has no room for is counted, and so is what sampling leaves out.
"""
