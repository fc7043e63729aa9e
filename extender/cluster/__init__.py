"""The only part of the extender that talks to the API server: it watches objects and writes what the engine decided.

`watch` turns objects into the engine's events, one `feed` for each collection, described by a row of `kinds`. `bind`
and `act` carry out decisions (`pending` holds waiting effects). `status` and `group_status` write the status of
GpuClasses, queues and gangs. `leadership` decides whether this process may write at all, and the client asks it before
every write. Nothing here decides where a pod goes. Start with `leadership`.
"""
