"""The contract between the extender and the device plugin: pure values and functions.

Read in this order: `names` (all strings on the wire), `inventory` (the GPUs of a node), `ask` (a pod's request),
`allocation` (a pod's GPUs), `books` (the usage of a node's GPUs), `choose` and `links` (the choice of GPUs on a node).
This package must not know the clock, the network, logging, or any other package of ours.
"""
