"""What the plugin writes: nothing while nothing changes, and little while somebody writes against it."""

import asyncio
from collections.abc import Callable
from typing import Any

from extender.sim.apiserver.managed import Writer
from extender.sim.apiserver.resources import PODS
from protos.contract import names
from tests.contract.deviceplugin.world import Node, a_container, a_node

WATCHED_S = 2.5


def writes_of_the_plugin(node: Node, then: Callable[[Any], None] = lambda _: None) -> list[Any]:
    """The resources that the plugin patches from now on; `then` is called after each."""
    seen: list[Any] = []
    patch = node.api.patch

    def counted(resource: Any, key: Any, body: Any, how: Any, writer: Writer, *more: Any, **named: Any) -> Any:
        answer = patch(resource, key, body, how, writer, *more, **named)
        if writer.manager == names.PLUGIN:
            seen.append(resource)
            asyncio.get_running_loop().call_soon(then, key)
        return answer

    node.api.patch = counted  # type: ignore[method-assign, assignment]
    return seen


def _assigned(node: Node, pod: str) -> bool:
    return bool(node.pod(pod)["metadata"]["annotations"].get(names.ALIYUN_ASSIGNED) == "true")


async def test_at_rest_nothing_is_written() -> None:
    async with a_node("--gpushare") as node:
        node.bind("placed", a_container(aliyun=4), on={"main": (1,)})
        node.bind("adopted", a_container(aliyun=4))
        await node.runs("placed", "adopted")
        await node.until(lambda: _assigned(node, "placed") and _assigned(node, "adopted"), "both are marked assigned")
        await node.until(lambda: node.allocatable.get(names.ALIYUN_COUNT) == "4", "the count is there")
        await node.until(lambda: "GpuAdopted" in node.events("adopted"), "an Event says so")
        seen = writes_of_the_plugin(node)
        await asyncio.sleep(WATCHED_S)
        assert seen == []


async def test_who_writes_against_the_plugin_does_not_make_it_write_all_the_time() -> None:
    async with a_node() as node:
        node.bind("p", a_container(mem=4), on={"main": (1,)})
        await node.runs("p")
        forged = node.placed({"main": (3,)})
        seen = writes_of_the_plugin(node, lambda key: node.annotate(key[1], names.ALLOCATION, forged))
        node.annotate("p", names.ALLOCATION, forged)
        await asyncio.sleep(WATCHED_S)
        assert seen.count(PODS) in range(1, 5)
