"""Which pods to move so that a pending pod or gang fits."""
