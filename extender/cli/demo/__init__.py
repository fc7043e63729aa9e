"""`gangshare demo`: two tenants, a piece of a real trace and a gang on the embedded cluster, checked in the end.

`tenants` shows who borrows and gives back, `trace` reads the recorded pods, `pods` makes Kubernetes pods of them,
`gang` shows what becomes of a gang (both are a `story`), `jobs` makes the Jobs of all these, `check` compares what each
container was given with its annotation and the books, `progress` shows how far it is, `run` puts it together.
"""
