"""Which pods are evicted so that a pod or gang of higher priority, or one below its quota, fits."""
