"""Reads what the measuring processes of all nodes saw, through the API server and with the user's own rights.

Each page is read by the proxy of its pod, as `kubectl get --raw` reads it. A node that does not answer is told, and
takes nothing from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from extender.cli import as_user
from extender.cli.errors import NOT_INSTALLED, CommandError
from extender.cli.options import installed_in
from protos.contract import names
from protos.contract.codec import BAD_JSON
from protos.contract.measured import Page, Use
from protos.contract.objects import ENDED, Pod
from protos.contract.printable import brief, printable, printable_json
from protos.kube import errors, paths
from protos.kube.client import ApiClient

AT_ONCE = 16
"""Pages that are read at the same time."""
ANSWER_S = 5.0
SHOWN = 200
"""Characters of a problem that are shown."""
WHAT = "the use of GPUs cannot be read"
MISSING = (
    "the use of GPUs is not measured: namespace {namespace} has no pod gangshare-usage.\n"
    "Set usage.enabled=true in the chart's values, or add manifests/components/usage to your kustomization.yaml "
    f"(docs/measuring.md). Is it in another namespace? Name that in {names.NAMESPACE_VARIABLE}."
)
ADVICE = (
    "You need the Role gangshare-usage-viewer (get pods/proxy in {namespace}), and the API server must reach port "
    f"{names.USAGE_PORT} of these pods (docs/measuring.md)."
)


class NodeUse(Use, frozen=True, kw_only=True):
    """One container on one GPU of a node."""

    node: str = ""


class Measured(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What all nodes saw, and what could not be measured."""

    uses: tuple[NodeUse, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes that were measured."""
    problems: tuple[str, ...] = ()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


_pods, _pages = msgspec.json.Decoder(_Pods), msgspec.json.Decoder(Page)


def read(kubeconfig: str, context: str) -> Measured:
    """The pages of all nodes; raises CommandError if there are none."""
    return asyncio.run(_read(kubeconfig, context))


async def _read(kubeconfig: str, context: str) -> Measured:
    async with as_user.client(kubeconfig, context, WHAT) as client:
        namespace = installed_in()
        label = {"labelSelector": f"app.kubernetes.io/name={names.USAGE}"}
        found = await client.fetch(paths.pods(namespace), _pods, params=label)
        pods = [pod for pod in found.items if pod.status.phase not in ENDED]
        if not pods:
            raise CommandError(MISSING.format(namespace=namespace), NOT_INSTALLED)
        turn = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(*(_page(client, pod, turn) for pod in pods))
    measured = joined(answers)
    if not measured.nodes:
        raise CommandError(f"{WHAT}: {measured.problems[0]}.\n{ADVICE.format(namespace=namespace)}")
    return measured


async def _page(client: ApiClient, pod: Pod, turn: asyncio.Semaphore) -> Page | str:
    """The page of a pod, or why there is none."""
    where = f"{paths.pod(installed_in(), pod.metadata.name, 'proxy')}/usage"
    try:
        async with turn, asyncio.timeout(ANSWER_S):
            return _pages.decode(printable_json(await client.get(where)))
    except TimeoutError:
        why = f"no answer in {ANSWER_S:g} s"
    except errors.ApiError as error:
        why = error.message or str(error)
    except BAD_JSON as error:
        why = f"its answer is not its JSON ({error})"
    return f"node {pod.spec.node_name or '-'} was not measured: {brief(printable(why), SHOWN)}"


def joined(answers: Iterable[Page | str]) -> Measured:
    """All pages as one."""
    uses: list[NodeUse] = []
    nodes, problems = [], []
    for answer in answers:
        if isinstance(answer, str):
            problems.append(answer)
            continue
        nodes.append(answer.node)
        problems += [f"node {answer.node}: {trouble}" for trouble in answer.troubles]
        uses += [NodeUse(node=answer.node, **msgspec.structs.asdict(use)) for use in answer.uses]
    return Measured(uses=tuple(uses), nodes=tuple(sorted(nodes)), problems=tuple(problems))
