"""The decisions: pure and synchronous, owned by one event loop.

`effects` what goes in and out; `ledger` nodes, pods and who holds what; `trust` which allocation annotations are
believed; `index` the nodes ranked for each shape of ask; `refusals` sentences and numbers; `engine` puts them together.
This package knows no clock (`now` comes in), no randomness, no logging, no network.
"""
