"""Decides the nodes of pending single pods before kube-scheduler asks about them."""
