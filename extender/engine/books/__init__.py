"""Who holds what: nodes, pods and GPUs, and what is kept for whom."""
