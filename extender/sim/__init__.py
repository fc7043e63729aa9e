"""An embedded cluster on one machine, without root: API server, scheduler loop and kubelet stand-ins.

The parts speak the real wire protocols (HTTP with JSON, gRPC over unix sockets), so extender and plugin processes run
unchanged. Start reading at ``cluster.EmbeddedCluster``; ``apiserver.api.Api`` holds the objects,
``scheduler.loop.Scheduler`` places pods, ``kubelet.kubelet.Kubelet`` admits and runs them.
"""
