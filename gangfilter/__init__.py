"""The pure part of gang scheduling: which pods form a group, and when a group may start.

It knows no GPUs: whether a gang fits is its owner's business. Start with `table`, the phases of a gang; `gang` follows
them, `dialects` reads which group a pod names, `podgroups` what PodGroups say, `group` what holds when several say
something.
"""
