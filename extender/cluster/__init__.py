"""The only part of the extender that talks to the API server: watches in; Bindings, wakes, evictions and words out.

`watch` turns what the API server shows into the engine's events, collection by collection (`feed`), a row of `kinds`
for each. `bind` and `act` carry out what the engine decided (`pending` holds what waits); `status` and `group_status`
say how a class, a queue and a gang stand. `leadership` (and `rivals`) says whether this process may write at all, and
`client` asks it before every write. Nothing here decides where a pod goes. Start with `leadership`.
"""
