"""The decisions: pure and synchronous, owned by one event loop.

Its folders are layers; docs/architecture.md draws them. `cycle.engine` is what the shell calls. This package knows no
clock (`now` comes in), no randomness, no logging, no network.
"""
