"""The scheduler extender: one beside each kube-scheduler.

`engine/` decides (pure: books, index, offers, refusals), `wire/` reads and writes the extender's JSON, `cluster/` talks
to the API server, `server/` answers HTTP, `cli/` has the user commands, `sim/` is the embedded cluster. `__main__` puts
the commands together.
"""
