"""`gangshare demo`: a piece of a real trace and a gang on the embedded cluster, checked in the end.

`trace` reads the recorded pods, `pods` makes Kubernetes pods of them, `gang` shows what becomes of a gang, `check`
compares what each container was given with its annotation and the books, `progress` shows how far it is, `run` puts it
together.
"""
