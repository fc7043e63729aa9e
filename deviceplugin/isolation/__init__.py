"""Isolation of parts of GPUs: what this node proves, what containers get, and whether they really have it.

Read in this order: `levels` (the isolation that facts of the node prove), `demands` (what a container gets, or why it
is refused), `checks` (whether the driver tells what was given). These only decide. `driver` and `probe` read the facts,
`watch` keeps the isolation in force, `readback` checks running containers, `evict` ends pods without their limit.
"""
