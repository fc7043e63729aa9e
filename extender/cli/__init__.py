"""What people type: `gangshare scheduler-config`, `top`, `explain`, `demo`.

`commands` has their options; each imports what it needs when it runs, so that `--help` answers at once.
`scheduler_config`, `top` and `explain` decide and render as pure functions; `inspection` reads the extender's status
port; `demo/` replays a real trace on the embedded cluster. `extender.__main__` puts the commands together.
"""
