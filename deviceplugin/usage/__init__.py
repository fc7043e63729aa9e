"""The measuring process: one for each GPU node, optional, in the PID namespace of the node.

It tells how much of each GPU a container uses, beside what its pod was promised. Read in this order: `processes` (what
the driver tells of the processes on the GPUs), `places` (which container a process is in), `holders` (what the pods of
this node were promised), `accounting` (both together). `pods` follows the API server, `metrics` and `page` show the
result, `notices` tells pods of it, `marks` tells the extender who is idle, and `run` puts all together.
"""
