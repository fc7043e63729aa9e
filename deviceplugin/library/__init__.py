"""Memory limits of parts by a library that the operator brings: HAMi-core's contract, never its code.

The library is loaded before all others into each process of a container, and refuses what is beyond the limit. It keeps
a file for each container, its region, which shows that it is loaded. Read in this order: `contract` (what a container
gets), `levels` (whether the node can give it), `region` (what a region says). These only decide. `probe` reads what the
node has, `regions` makes and removes the files, `reader` reads one, `prover` checks running containers.
"""
