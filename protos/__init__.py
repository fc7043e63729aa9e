"""The protocols that both processes speak.

`kubelet/` the kubelet's gRPC services and their generated code; `contract/` what the extender and the device plugin
must agree on (names, inventory, ask, allocation, node books, GPU choice): pure, no clock, no I/O; `kube/` the API
server's protocol: list-then-watch, patch, bind, events, leases; `logs` how both write. Nothing here decides where a pod
goes across nodes.
"""
