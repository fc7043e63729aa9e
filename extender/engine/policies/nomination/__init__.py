"""Nominates single pods to nodes that kube-scheduler did not check."""
