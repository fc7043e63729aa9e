"""The helper that makes and destroys MIG instances on GPUs that the operator gives over to it.

It is a process of its own, because that takes rights which the plugin should not have. It knows no API server and no
pods: the plugin tells it which instances pods hold, and it makes the driver have just these.
"""
