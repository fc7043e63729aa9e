"""The end of the demo: commands that run a pod of one's own, which is refused at first, for a reason."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from extender.cli.demo import gang, manifests
from extender.sim.podspec import Object
from protos.contract import names

NAME = "my-pod"
UNITS, WRONG, RIGHT = 4, 3, 2
"""GiB of GPU memory, the number of GPUs among which they do not divide, and one among which they do."""
SERVE = (
    "Now you: `gangshare demo --serve --ui` (`make demo ARGS='--serve --ui'`) keeps the cluster up, shows it in the "
    "browser, and shows how to run a pod."
)
STAYS = "The cluster stays up until Ctrl-C. In another terminal:"
INSTALL = "kubectl is not on the PATH (https://kubernetes.io/docs/tasks/tools shows how to install it). curl does, too:"


class Place(NamedTuple):
    """Where the commands find the cluster."""

    kubeconfig: Path
    api: str
    """URL of the API server."""
    status: str
    """URL of the extender's status port."""

    @property
    def manifest(self) -> Path:
        return self.kubeconfig.with_name(f"{NAME}.json")

    @property
    def exports(self) -> str:
        """The variables that lead kubectl and gangshare to the cluster."""
        return f"export KUBECONFIG={self.kubeconfig} GANGSHARE_SERVER={self.status}"

    @property
    def pods(self) -> str:
        return f"{self.api}/api/v1/namespaces/{manifests.NAMESPACE}/pods"


class Verbs(NamedTuple):
    """The commands of one program."""

    submit: str
    mend: str
    watch: Sequence[str]
    look: Sequence[str]


def pod() -> Object:
    """The pod that the commands submit."""
    limits = {names.GPU_MEM: str(UNITS)}
    return manifests.single(NAME, NAME, {"limits": limits}, {names.GPU_COUNT: str(WRONG)})


def write(place: Place) -> None:
    """Write the manifest that the commands name. JSON is YAML, too."""
    place.manifest.write_text(json.dumps(pod(), indent=2) + "\n")


def empty(place: Place) -> list[str]:
    """What to type at a cluster without workload."""
    return [STAYS, f"  {place.exports}", f"  {command()} top"]


def guide(place: Place, other: str, kubectl: bool) -> list[str]:
    """What to type. `other` is a pod to look at."""
    ours, verbs = command(), _kubectl(place) if kubectl else _curl(place)
    return [
        f"Now you. {STAYS}",
        f"  {place.exports}",
        *([] if kubectl else [INSTALL]),
        f"Ask what would become of a pod that requests {UNITS} GiB of the memory of {WRONG} GPUs together:",
        f"  {ours} whatif -f {place.manifest}",
        "Submit it nevertheless:",
        f"  {verbs.submit}",
        f"It is refused: {UNITS} does not divide by {WRONG}. It says so:",
        f"  {ours} explain pod {NAME}",
        f"Mend it, with {RIGHT} GPUs:",
        f"  {verbs.mend}",
        "Watch it run. Its log shows its GPUs:",
        *(f"  {line}" for line in verbs.watch),
        f"  {ours} explain pod {NAME}",
        "Look around:",
        *(f"  {line}" for line in verbs.look),
        f"  {ours} top",
        f"  {ours} explain pod {other}",
        f"  {ours} explain group {gang.NAME}",
    ]


def command() -> str:
    """The command line that runs this program."""
    if shutil.which("gangshare"):
        return "gangshare"
    called = Path(sys.argv[0]).resolve()
    return f"{sys.executable} -m extender" if called.name == "__main__.py" else str(called)


def _kubectl(place: Place) -> Verbs:
    return Verbs(
        submit=f"kubectl apply -f {place.manifest}",
        mend=f"kubectl annotate --overwrite pod {NAME} {names.GPU_COUNT}={RIGHT}",
        watch=(
            f"kubectl wait --for=condition=Ready pod/{NAME}",
            f"kubectl get pod {NAME} -o wide",
            f"kubectl logs {NAME}",
        ),
        look=(f"kubectl describe pod {NAME}", "kubectl get nodes", "kubectl get queues,gpuclasses"),
    )


def _curl(place: Place) -> Verbs:
    patch = json.dumps({"metadata": {"annotations": {names.GPU_COUNT: str(RIGHT)}}})
    send = "curl -fsS -o /dev/null -H 'Content-Type: application"
    return Verbs(
        submit=f"{send}/json' --data @{place.manifest} {place.pods}",
        mend=f"{send}/merge-patch+json' -X PATCH --data '{patch}' {place.pods}/{NAME}",
        watch=(f"curl -fsS {place.pods}/{NAME}/log",),
        look=(),
    )
