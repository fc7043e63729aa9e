"""MIG instances of this node: read by NVML, and offered by the strategy that the operator chose.

Instances that exist are offered; none is made or destroyed here.
"""
