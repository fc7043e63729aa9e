"""The extender's HTTP servers, and the process around them.

`verbs` answers kube-scheduler, `gpushare` does so in gpushare's dialect, `status` answers people and probes. `gate`
says when verbs are served, `binds` carries a bind through, `run` puts everything together. Start with `verbs`.
"""
