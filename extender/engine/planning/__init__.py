"""One snapshot of a node and one solver: whether pods and gangs fit, and where."""
