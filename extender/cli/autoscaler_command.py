"""`gangshare autoscaler-tags`: the options, and where the template comes from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from extender.cli.options import Context, Kubeconfig

if TYPE_CHECKING:
    from extender.cli.node_template import NodeTemplate


def autoscaler_tags(
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="A node of the cluster that new nodes will be like.")
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="Instead of a node: a profile of fake GPUs, by name or as a file.")
    ] = "",
    cloud: Annotated[
        Literal["aws", "gce", "azure", "karpenter"],
        typer.Option("--for", help="aws, gce, azure: tags for Cluster Autoscaler; karpenter: a NodeOverlay."),
    ] = "aws",
    pool: Annotated[str, typer.Option(metavar="NAME", help="NodePool of the NodeOverlay.")] = "",
    instance_type: Annotated[str, typer.Option(metavar="NAME", help="Instance type of the NodeOverlay.")] = "",
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A further label of new nodes. May be repeated.")
    ] = None,
    taint: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE:EFFECT", help="A further taint. May be repeated.")
    ] = None,
    memory_unit: Annotated[str, typer.Option(help="Unit of GPU memory, with --profile.", metavar="UNIT")] = "GiB",
    slices_per_gpu: Annotated[int, typer.Option(min=1, help="Time slices per GPU, with --profile.", metavar="N")] = 100,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Print what an autoscaler must know of new nodes, so that it also adds the first one."""
    from extender.cli import node_template
    from extender.cli.errors import CommandError

    if bool(node) == bool(profile):
        raise CommandError("expected a NODE of the cluster, or --profile")
    if node:
        found = asyncio.run(_of_cluster(node, kubeconfig, context))
    else:
        found = _of_profile(profile, memory_unit, slices_per_gpu)
    made = node_template.with_more(found, label or (), taint or ())
    typer.echo(node_template.render(made, cloud, pool, instance_type), nl=False)


async def _of_cluster(name: str, kubeconfig: str, context: str) -> NodeTemplate:
    from extender.cli import as_user, node_template
    from protos.contract import objects
    from protos.kube import paths

    async with as_user.client(kubeconfig, context, f"node {name}") as client:
        return node_template.of_node(objects.decode_node(await client.get(paths.node(name))))


def _of_profile(profile: str, memory_unit: str, slices_per_gpu: int) -> NodeTemplate:
    from extender.cli import node_template
    from extender.cli.errors import CommandError, with_process
    from protos.contract import quantity
    from protos.files import FileError

    with with_process("autoscaler-tags --profile"):
        from deviceplugin import devices, fake
    try:
        sharing = devices.Sharing(unit_mib=quantity.memory_unit(memory_unit), slices_per_gpu=slices_per_gpu)
        machine = fake.FakeSource(profile, profile).read()
    except (quantity.QuantityError, FileError) as error:
        raise CommandError(str(error)) from error
    inventory = devices.inventory(machine, {}, sharing)
    counts = {resource: len(devices.devices(resource, inventory, sharing).devices) for resource in sharing.served}
    offered = {resource: count for resource, count in counts.items() if count}
    return node_template.NodeTemplate(profile, offered, {node_template.GPU_PRESENT: "true"})
