"""Evictions for a pending pod or gang of higher priority, or of a queue below its quota."""
