"""The protocols of the extender and the device plugin.

`kubelet/`: the kubelet's gRPC services and their generated code. `contract/`: names, inventory, ask, allocation, node
books and GPU choice, pure, without clock and I/O. `kube/`: the API server's protocol: list-then-watch, patch, bind,
events, leases. `logs`: the logging of both processes. `files`: what others write into files. Nothing here decides
about placement across nodes.
"""
