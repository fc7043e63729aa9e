"""The user commands: `gangshare top`, `explain`, `queues`, `defrag`, `scheduler-config`, `demo` and others.

`commands` and `explain_commands` have their options, `options` those that they share; each command imports what it
needs when it runs, so that `--help` is fast. The views (`top`, `classes`, `queues`, `explain`) and `scheduler_config`
are pure functions. `inspection` reads the extender's status port, `show` prints an answer in the chosen format, and
`demo/` replays a real trace on the embedded cluster. `extender.__main__` assembles the commands.
"""
