"""Which node is best for a pod, and who is brought back when there is room."""
