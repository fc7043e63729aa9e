"""The page: a small web server that shows GPUs, queues and pending workloads in a browser, read-only.

It reads the cluster with the credentials of the one who looks. `views` and `changes` are pure: what the page shows, and
what has changed. `sources` reads the aggregated API or the status port, `board` looks again and again for one user and
all tabs, `guard` decides whose requests are answered, and `app` answers them.
"""
