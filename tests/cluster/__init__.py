"""A real Kubernetes cluster on one machine, for tests: no Docker, no registry, no virtual machine.

`cluster.Cluster.up()` starts etcd, kube-apiserver, kube-controller-manager, kube-schedulers (`controlplane`) and real
nodes, each a kubelet and a containerd in a mount namespace (`node`), from programs built once (`assets`, `images`).
A `run` owns all of it; `remnants` ends a run by its id alone, its own or one whose process was killed. `host` holds
what two clusters side by side must not share. Read `cluster`, then `node`. It knows nothing of Gangshare: the tests
start the extender and the device plugins by `Cluster.process` and `Cluster.scheduler`.
"""
