"""Gangs that run with more or fewer members: jobs asked to shrink or grow, nodes left in time."""
