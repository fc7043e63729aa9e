"""Which pods to move so that somebody who waits fits (defragmentation)."""
