"""Gangs in the books, from their first member to their last."""
