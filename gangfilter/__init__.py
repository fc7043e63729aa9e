"""The pure part of gang scheduling: which pods form a group, and when a group may start.

It knows no GPUs: whether a gang fits is a function that it is given. This version schedules every pod as a gang of one,
so the package has no module yet.
"""
