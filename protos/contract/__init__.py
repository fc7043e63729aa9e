"""What the extender and the device plugin must agree on, as pure values and functions.

Read in this order: `names` (every string on the wire), `inventory` (what a node has), `ask` (what a pod wants),
`allocation` (what a pod was given), `books` (who holds what on one node), `choose` and `links` (which GPUs of a node).
This package must not know the clock, the network, logging, or any other package of ours.
"""
