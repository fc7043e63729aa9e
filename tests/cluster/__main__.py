"""A real cluster on this machine, left running to play with: `python -m tests.cluster [--nodes 2]`."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys

from tests.cluster.assets import DEFAULT_VERSION, MissingAsset
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare
from tests.cluster.process import HarnessError


def main() -> int:
    arguments = _parse()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without it
    try:
        with Cluster.up(arguments.nodes, version=arguments.version, in_cluster=arguments.in_cluster) as cluster:
            sharing = None if arguments.bare else _share(cluster)
            with contextlib.suppress(KeyboardInterrupt):
                print(_guide(cluster, sharing), flush=True)
                signal.pause()
            print("taking it down", flush=True)
    except (MissingAsset, HarnessError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2, help="kubelets with a containerd each (default 2)")
    parser.add_argument("--version", help=f"of Kubernetes (default $KUBE_VERSION, else {DEFAULT_VERSION})")
    parser.add_argument("--bare", action="store_true", help="the stock cluster alone, without Gangshare")
    parser.add_argument("--in-cluster", action="store_true", help="let pods use the API server, with service accounts")
    return parser.parse_args()


def _share(cluster: Cluster) -> Gangshare:
    """Our extender and plugins on it: every other node a pretended T4 server, the rest DGX-1."""
    machines = {node: ("dgx1-v100" if i % 2 else "t4x4") for i, node in enumerate(cluster.nodes)}
    return Gangshare(cluster, machines).start()


def _guide(cluster: Cluster, sharing: Gangshare | None) -> str:
    kubectl = cluster.plane.assets.program("kubectl")
    return f"""
Kubernetes {cluster.version} with {", ".join(cluster.nodes)} is up. In another terminal:

  export KUBECONFIG={cluster.kubeconfig}
  alias kubectl={kubectl}
  kubectl get nodes
  kubectl run hello --image=localhost/busybox:1 --restart=Never -- echo hello
  kubectl logs hello
{_gpu_guide(sharing) if sharing else ""}
Logs: {cluster.run.logs}. Ctrl-C takes everything away."""


def _gpu_guide(sharing: Gangshare) -> str:
    machines = ", ".join(f"{node} ({profile.name})" for node, profile in sharing.profiles.items())
    spec = (
        '{"spec":{"schedulerName":"gangshare","containers":[{"name":"share","image":"localhost/busybox:1",'
        '"command":["sh","-c","env; sleep infinity"],"resources":{"limits":{"gangshare.io/gpu-mem":"6"}}}]}}'
    )
    return f"""
Gangshare runs on it, with pretended GPUs: {machines}. A pod with 6 GiB of one:

  kubectl run share --image=localhost/busybox:1 --restart=Never --overrides='{spec}'
  kubectl logs share | grep NVIDIA
  {sys.executable} -m extender top --server http://127.0.0.1:{sharing.pair.status}
"""


if __name__ == "__main__":
    sys.exit(main())
