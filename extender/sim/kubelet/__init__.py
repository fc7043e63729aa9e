"""A kubelet stand-in: device manager, PodResources, serial admission, pretended containers; true gRPC sockets."""
