"""NVIDIA's container toolkit on a real node: a CDI specification whose hook sets memory limits when a container starts.

The hook is a program that runc starts with the OCI state on its standard input, as it starts NVIDIA's. It finds the
container's control group by the `0::` line of its process, and sets the limit for one GPU. The limits stand in the
profile of the node's fake machine, where the plugin reads them back.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from deviceplugin.fake import FakeSource
from extender.sim.kubelet.runtime import HookError
from protos.contract import names
from tests.sim.standin_toolkit import MIB, Driver, apply_limits

ROOT = Path(__file__).parents[2]
OLDEST = 615
"""The first driver with the call."""


def edit(profile: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a profile as a whole; the hook, which does so too, waits meanwhile."""
    with profile.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine = yaml.safe_load(profile.read_text())
        change(machine)
        fresh = profile.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(machine, sort_keys=False))
        fresh.replace(profile)


def specify(folder: Path, profile: Path, node: str, root: Path, *, hook: bool = True) -> None:
    """Write the CDI specification of the profile's GPUs; without `hook` as a mode of the runtime that has none."""
    devices = []
    for uuid in (gpu.uuid for gpu in FakeSource(str(profile), node).read().gpus):
        command = [sys.executable, "-m", "tests.cluster.toolkit", f"--gpu-id={uuid}"]
        command += [f"--profile={profile}", f"--root={root}"]
        hooks = [{"hookName": "createRuntime", "path": command[0], "args": command, "env": [f"PYTHONPATH={ROOT}"]}]
        edits = {"env": [f"INJECTED={uuid}"], **({"hooks": hooks} if hook else {})}
        devices.append({"name": uuid, "containerEdits": edits})
    fresh = folder / "fake-gpus.new"
    fresh.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": names.CDI_KIND, "devices": devices}))
    fresh.replace(folder / "fake-gpus.json")


def hook(profile: Path, root: Path, uuid: str, state: dict[str, Any]) -> None:
    """What the hook does for one GPU; raises HookError."""
    config = json.loads((Path(state["bundle"]) / "config.json").read_text())
    env = dict(line.split("=", 1) for line in config["process"]["env"])
    lines = Path(f"/proc/{state['pid']}/cgroup").read_text().splitlines()
    group = root / next(line for line in lines if line.startswith("0::")).removeprefix("0::/")

    def limit(machine: dict[str, Any]) -> None:
        memory = machine["defaults"]["memMiB"] * MIB
        able = int(machine["driver"].partition(".")[0]) >= OLDEST
        driver = Driver(machine["driver"], able, {uuid: memory})
        apply_limits(env, group, root, driver, [uuid])
        for at, by_gpu in driver.limits.items():
            told = {gpu: hard // MIB for gpu, hard in by_gpu.items()}
            machine["limits"][at] = {**machine["limits"].get(at, {}), **told}

    edit(profile, limit)


def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("--profile", "--root"):
        parser.add_argument(option, type=Path, required=True)
    parser.add_argument("--gpu-id", required=True)
    given = parser.parse_args()
    try:
        hook(given.profile, given.root, given.gpu_id, json.load(sys.stdin))
    except HookError as error:
        print(error, file=sys.stderr)
        return 1
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
