"""A simulated scheduler that calls extenders as kube-scheduler 1.34 does: queue, cycle, bind, requeue rules, Lease."""
