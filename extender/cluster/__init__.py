"""The only part of the extender that talks to the API server: watches in; Bindings, wakes and Events out.

`watch` turns what the API server shows into the engine's events; `bind` and `act` carry out what the engine decided;
`leadership` says whether this process may write at all, and `client` asks it before every write. Nothing here decides
where a pod goes. Start with `leadership`.
"""
