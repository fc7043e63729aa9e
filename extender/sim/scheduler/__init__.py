"""A scheduler that treats extenders as kube-scheduler 1.34 does: queue, cycle, held binds, requeue rules, Lease."""
