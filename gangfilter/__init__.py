"""The pure part of gang scheduling: which pods form a group, and when a group may start.

It knows no GPUs: its caller decides whether a gang fits. Start with `table`, the phases of a gang, and `gang`, which
follows them. `dialects` reads the group that a pod names, `podgroups` reads PodGroups, and `agreement` combines what
several sources declare.
"""
