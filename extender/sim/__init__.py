"""An embedded cluster on one machine, without root: API server, scheduler loop and kubelet stand-ins.

The parts speak the true wire protocols (HTTP with JSON, gRPC over unix sockets) to extender and plugin processes that
do not know the difference. Start reading at ``cluster.EmbeddedCluster``; ``apiserver.api.Api`` holds the objects,
``scheduler.loop.Scheduler`` places pods, ``kubelet.kubelet.Kubelet`` admits and runs them.
"""
