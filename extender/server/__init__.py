"""The extender's HTTP servers, and the process around them.

`verbs` answers kube-scheduler, `gpushare` the same in gpushare's dialect, `status` people and probes; `gate` says when
the verbs are served; `binds` carries a bind through; `run` puts everything together. Start with `verbs`.
"""
