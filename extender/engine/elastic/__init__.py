"""Gangs that can do with more or fewer members: who is spared, jobs asked to shrink or grow, nodes left in time."""
