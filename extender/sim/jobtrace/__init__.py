"""Replay of lists of jobs that come, run and go: how long they wait, and how much of the GPUs is used.

A job of up to a node's GPUs sits on one node; a larger one takes equal shares of several nodes, all at once.
Read in this order: ``trace`` (the list), ``cluster`` (what is free), ``floor`` (what runs), ``baselines`` (known
policies), ``ours`` (the engine's line and backfill), ``replay``; ``restarts`` (with preemption) and ``figures`` (what
came out).
"""
