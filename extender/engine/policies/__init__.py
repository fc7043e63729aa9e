"""Callers of the solver: defragmentation, elasticity, preemption, backfill. Each may import those before it."""
