"""`gangshare demo`: a piece of a real trace, replayed on the embedded cluster, and checked in the end.

`trace` reads the recorded pods, `pods` makes Kubernetes pods of them, `check` compares what each container was given
with its annotation and the books, `progress` shows it, `run` puts it together.
"""
