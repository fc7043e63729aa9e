"""The aggregated API `visibility.gangshare.io`: what the books say, for the API server's own users, by their rights.

`server` listens, `trust` says which requests come from the API server, `request` what they are about, and `api` answers
them. `resources` says what there is, `items` and `lines` read it from the engine, `documents` describes it to clients.
Start with `api`.
"""
