"""Replay of job lists: how long jobs wait, and how much of the GPUs they use.

A job of up to a node's GPUs runs on one node. A larger job takes equal shares of several nodes, all at once.
Read in this order: ``trace`` (the list), ``cluster`` (free GPUs), ``simulation`` (running jobs), ``baselines`` (known
policies), ``ours`` (the engine's queue order and backfill), ``replay``, ``restarts`` (with preemption), ``figures``.
"""
