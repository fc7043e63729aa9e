"""Scores of nodes for a pod, and indexes of nodes by score."""
