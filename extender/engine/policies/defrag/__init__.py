"""Which pods to move so that a pod or gang that waits fits."""
