"""The extender's JSON, in and out.

`shapes` is kube-scheduler's extender protocol, version 1, `admission` the API server's reviews of new pods, `answers`
and `listings` the pages of the status port. This package must not know the API server, HTTP or the clock. Start
with `shapes`.
"""
