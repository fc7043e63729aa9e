"""A simulated kubelet: device manager, PodResources, serial admission and simulated containers; real gRPC sockets."""
