"""MPS as an optional component: one control daemon for each GPU that the operator gives over to MPS.

It is a process of its own, with rights that the device plugin does not have, and it talks to no API server: the two
tell each other in two files of one folder of the host (`exchange`). Read in this order: `exchange`, `decide` (what to
do with a GPU), `v2` and `v3` (the commands of the control daemon), `daemon` (the process), `unit` (one GPU),
`component` (all of them). `answers` and `partner` are the plugin's side.
"""
