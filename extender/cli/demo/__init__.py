"""`gangshare demo`: two tenants, a part of a real trace and a gang on the embedded cluster, and a final check.

`tenants` and `gang` are two stories (`story`) about queues and gangs. `trace` reads the recorded pods, `manifests`
makes pods and Jobs, and `definitions` has the kinds of queues and classes. `check` compares the devices of each
container with its annotation and the books. `count` counts the pods, `yours` shows how to go on, and `run` runs
it all.
"""
