"""The Kubernetes API server's protocol: raw JSON in and out, asyncio, no decisions.

Read in this order: `errors` (what can go wrong), `credentials` (who we are), `client` (one request), `reflect` (list,
then watch, for ever), and on top of the client `binding`, `lease` and `events`; `paths` builds addresses. This package
must not know schedulers, GPUs or any other package of ours than the contract.
"""
