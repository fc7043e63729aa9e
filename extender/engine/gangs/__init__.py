"""Gangs, from their first member to their last."""
