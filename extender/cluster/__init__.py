"""The only part of the extender that talks to the API server: watches in; Bindings, wakes, evictions and words out.

`watch` turns what the API server shows into the engine's events, collection by collection (`feed`), `groups` for the
objects that declare gangs; `bind` and `act` carry out what the engine decided, `group_status` says how a gang stands in
the words of each kind of PodGroup; `leadership` (and `rivals`) says whether this process may write at all, and `client`
asks it before every write. Nothing here decides where a pod goes. Start with `leadership`.
"""
