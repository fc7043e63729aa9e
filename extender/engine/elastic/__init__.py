"""Gangs that run with more or fewer members: who can be spared, and jobs whose operator is asked to shrink or grow."""
