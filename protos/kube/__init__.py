"""The Kubernetes API server's protocol: raw JSON, asyncio, no decisions.

Read in this order: `errors`, `credentials`, `client` (one request), `reflect` (list, then watch, endlessly), then the
users of the client: `binding`, `lease` and `events`; `paths` builds URL paths. This package must not know schedulers,
GPUs or any other package of ours than the contract.
"""
