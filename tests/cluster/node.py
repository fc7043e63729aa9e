"""A real node: kubelet and containerd in a mount namespace with a /var and a /run of their own.

Both folders are overlays over the machine's, their upper layers in memory: CNI state, network namespaces, shim
sockets and whatever else is written there go with the namespace. The kubelet's folder and the container logs are
bind-mounted from the run's folder, so that a device plugin's socket has a path outside as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import cgroups, host, images, remnants
from tests.cluster.assets import CNI_PLUGINS
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import HarnessError, Process, wait_for

_START_SECONDS = 90
_DISK = ("kubelet", "pods", "containers", "containerd")
_MOUNTS = """
set -e
mount -t tmpfs -o mode=755 tmpfs {home}/upper
for top in var run; do
  mkdir -m 755 {home}/upper/$top {home}/upper/$top.work
  mount -t overlay overlay -o lowerdir=/$top,upperdir={home}/upper/$top,workdir={home}/upper/$top.work /$top
done
for bound in lib/kubelet log/pods log/containers; do
  mkdir -p /var/$bound
  mount --bind {home}/$(basename $bound) /var/$bound
done
mount --make-rshared /
touch {home}/booted
exec sleep infinity
"""
_CDI = """enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi", "{cdi}"]"""
_CONTAINERD = """
version = 2
root = "{home}/containerd"
state = "{home}/upper/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  {cdi}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{home}/cni"
"""


class Node:
    """`boot()` brings containerd up, `join()` starts the kubelet; both may be killed and started again one by one."""

    def __init__(
        self,
        plane: ControlPlane,
        number: int,
        *,
        config: Mapping[str, Any] | None = None,
        args: Sequence[str] = (),
        containerd: Path | None = None,
    ) -> None:
        self.name = f"node-{number}"
        self.home = plane.run.dir / f"n{number}"
        self.kubelet_dir = self.home / "kubelet"
        """/var/lib/kubelet of this node, by its path outside: device-plugins/ and pod-resources/ lie there."""
        self.pod_logs = self.home / "pods"
        self.cdi = self.home / "cdi"
        """A folder of CDI specifications that outlasts a reboot."""
        self._plane = plane
        self._run = plane.run
        self.cgroup = f"{self._run.id}-n{number}"
        """Its top control group, in every hierarchy."""
        self._socket = self.home / "containerd.sock"
        for folder in (*_DISK, "cni", "cdi", "upper"):
            (self.home / folder).mkdir(parents=True)
        self._healthz_port = host.free_port()
        self._containerd = containerd
        self._write_configuration(number, config or {})
        self._args = list(args)

    def boot(self) -> None:
        """The namespace, the cgroups and containerd, without waiting."""
        cgroups.create(self.cgroup)
        holder = self._run.process(f"{self.name}-namespace", self._holder_argv())
        holder.start().wait_until((self.home / "booted").exists, 10, f"mount namespace of {self.name}")
        self._holder = holder
        self._namespace = remnants.mount_namespace(holder.pid)
        program = self._containerd / "containerd" if self._containerd else Path("containerd")
        path = f"{self._containerd}:{os.environ['PATH']}" if self._containerd else os.environ["PATH"]
        argv: list[str | os.PathLike[str]] = [program, "--config", self.home / "containerd.toml"]
        self.containerd = self.process("containerd", argv, env={"PATH": path})
        self.containerd.start()
        options = [f"--config={self.home / 'kubelet.json'}", f"--kubeconfig={self._kubeconfig}"]
        options += [f"--hostname-override={self.name}", *self._args]
        self.kubelet = self.process("kubelet", [self._plane.assets.program("kubelet"), *options])

    def join(self) -> None:
        """Start the kubelet once containerd answers, with the two images there."""
        self.containerd.wait_until(self._containerd_answers, _START_SECONDS, "containerd that answers")
        for archive in self._plane.assets.images:
            self.import_image(archive)
        self.kubelet.start()

    def wait_ready(self) -> None:
        """Wait until pods can be scheduled here. A kubelet that ends before is started once more, as systemd would do.

        A kubelet of 1.34 may meet a nil pointer if it starts slowly: its DRA manager asks for the node too early.
        """
        try:
            self.kubelet.wait_until(self.ready, _START_SECONDS, f"ready {self.name}")
        except HarnessError:
            if self.kubelet.alive:
                raise
            self.kubelet.start().wait_until(self.ready, _START_SECONDS, f"ready {self.name}")

    def ready(self) -> bool:
        """Whether the kubelet is well and the Node object says Ready, with no taint of the node controller."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._healthz_port}/healthz", timeout=5):
            pass
        node = self._plane.api.get(f"/api/v1/nodes/{self.name}")
        conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])}
        tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", []))
        return conditions.get("Ready") == "True" and not tainted

    def reboot(self) -> None:
        """Lose every process, mount and cgroup of the node at once, then start again from its disk."""
        self._power_off()
        self.boot()
        self.join()

    def replace(self) -> None:
        """The same with an empty disk, as another machine of this name has it."""
        self._power_off()
        for folder in _DISK:
            shutil.rmtree(self.home / folder)
            (self.home / folder).mkdir()
        self.boot()
        self.join()

    def process(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        guest: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """A process that sees this node's /var/lib/kubelet, not started yet; its log is `<node>-<name>.log`."""
        return self._run.process(
            f"{self.name}-{name}", argv, guest=guest, env=env, cwd=cwd, namespace_of=self._holder.pid
        )

    def command(self, *argv: str | os.PathLike[str]) -> str:
        """The output of a command in this node's mount namespace; raises CalledProcessError."""
        entered = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *argv]
        return subprocess.run(entered, check=True, capture_output=True, text=True, timeout=300).stdout

    def import_image(self, archive: Path) -> None:
        """Put the images of a docker archive into containerd."""
        self._images("import", archive)

    def tag_image(self, name: str, other: str) -> None:
        """Give an image another name, too."""
        self._images("tag", name, other)

    def _images(self, *command: str | os.PathLike[str]) -> None:
        self.command("ctr", "--address", self._socket, "--namespace", "k8s.io", "images", *command)

    def _containerd_answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            return bool(self.command("ctr", "--address", self._socket, "version"))
        return False

    def _power_off(self) -> None:
        wait_for(self._powered_off, 20, f"end of all processes of {self.name}")
        for process in (self.kubelet, self.containerd, self._holder):
            process.kill()
        for tree in cgroups.trees():
            cgroups.remove(tree / self.cgroup)
        (self.home / "booted").unlink()
        self._socket.unlink(missing_ok=True)

    def _powered_off(self) -> bool:
        left = remnants.in_cgroup(self.cgroup) + remnants.in_mount_namespace(self._run.id, self._namespace)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _holder_argv(self) -> list[str]:
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTS.format(home=self.home)]

    def _write_configuration(self, number: int, kubelet: Mapping[str, Any]) -> None:
        containerd = _CONTAINERD.format(
            home=self.home,
            socket=self._socket,
            pause=images.PAUSE,
            cni_plugins=CNI_PLUGINS,
            cdi=_CDI.format(cdi=self.cdi) if self._containerd else "",
        )
        (self.home / "containerd.toml").write_text(containerd)
        routes = [{"dst": "0.0.0.0/0"}]
        ipam = {"type": "host-local", "subnet": self._run.slot.pod_subnet(number), "routes": routes}
        network = {"cniVersion": "0.4.0", "name": self._run.id, "plugins": [{"type": "ptp", "ipam": ipam}]}
        (self.home / "cni" / "10-ptp.conflist").write_text(json.dumps(network))
        self._kubeconfig = self._plane.user_kubeconfig(f"system:node:{self.name}", ["system:nodes"])
        (self.home / "kubelet.json").write_text(json.dumps({**self._kubelet_config(), **kubelet}))

    def _kubelet_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._plane.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "enforceNodeAllocatable": [],
            "address": "0.0.0.0",  # the API server asks for logs at the node's InternalIP
            "port": host.free_port(),
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self._healthz_port,
            "volumePluginDir": str(self.home / "volume-plugins"),
            "makeIPTablesUtilChains": False,
            "failSwapOn": False,
            "evictionHard": {"memory.available": "50Mi"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "1s",  # extended resources appear without a wait of 10 s
        }
        if self._plane.assets.minor >= 31:
            config["failCgroupV1"] = False
        return config
