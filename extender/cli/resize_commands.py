"""`gangshare resize pod`: the options."""

from __future__ import annotations

from typing import Annotated

import typer

from extender.cli.options import Context, Kubeconfig, Namespace, plain_typer

resize = plain_typer(no_args_is_help=True, help="Change the GPU memory of running pods.")


@resize.command("pod")
def pod(
    pod: Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")],
    gpu_mem: Annotated[
        int, typer.Option("--gpu-mem", min=1, help="Units of memory on each GPU, as in the pod's limits.", metavar="N")
    ],
    container: Annotated[
        str, typer.Option("--container", "-c", help="The container.  [default: all with parts of GPUs]", metavar="NAME")
    ] = "",
    namespace: Namespace = "default",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the answer.", metavar="SECONDS")] = 30.0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Change the GPU memory of a running pod, where NVIDIA's driver limits it; the pod is not restarted."""
    from extender.cli import explain, resize

    key = explain.key("pod", pod, namespace)
    resize.pod(resize.Asked(key, container, gpu_mem, timeout, kubeconfig, context), typer.echo)
