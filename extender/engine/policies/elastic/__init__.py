"""Jobs are asked to shrink or grow, and members leave nodes that are drained."""
