"""What is read of the aggregated API and of the status port, with the rights of the viewer."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from extender.ui import sources
from extender.ui.sources import MOST_NAMESPACES, Aggregated, Status
from extender.wire.visibility import GROUP_VERSION
from protos.kube import errors
from protos.kube.client import ApiClient

BASE = f"/apis/{GROUP_VERSION}"
GANG = {"namespace": "team-a", "name": "g", "phase": "Waiting", "queue": "q"}
GPU = {"index": 0, "uuid": "GPU-0", "mem": 16, "memUsed": 4}
PODS = [
    {"namespace": "team-a", "name": "late", "uid": "1", "state": "waiting", "sentence": "no room"},
    {"namespace": "team-a", "name": "runs", "uid": "2", "state": "bound"},
]


def listed(*statuses: dict[str, Any]) -> dict[str, Any]:
    return {"items": [{"metadata": {}, "status": status} for status in statuses]}


class Server:
    """An API server that answers these paths and forbids all others."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asked = answers, list[str]()
        self.params, self.bodies = list[dict[str, str]](), list[Any]()

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        if path not in self.answers:
            raise errors.Forbidden(f"GET {path}")
        return msgspec.json.encode(self.answers[path])

    async def post(self, path: str, body: msgspec.Raw) -> bytes:
        self.bodies.append(msgspec.json.decode(bytes(body)))
        return await self.get(path)

    async def fetch(self, path: str, decoder: msgspec.json.Decoder[Any], params: Any = None) -> Any:
        self.params.append(params or {})
        return decoder.decode(await self.get(path))

    @property
    def client(self) -> ApiClient:
        return cast(ApiClient, self)


async def test_the_aggregated_api_gives_nodes_queues_gangs_and_pending_pods() -> None:
    node = {"name": "n", "unitMiB": 1024, "gpus": [{**GPU, "node": "n", "unitMiB": 1024, "otherPods": 1}]}
    server = Server(
        {
            f"{BASE}/gpunodes": listed(node),
            f"{BASE}/gpuqueues": listed({"name": "q"}),
            f"{BASE}/gangs": listed(GANG),
            f"{BASE}/gpupods": listed(PODS[0]),
        }
    )
    source = Aggregated(server.client)
    (gpu,) = (await source.nodes())[0].gpus
    assert (gpu.state, gpu.used, gpu.others) == ("part", 4096, 1)
    rest = await source.rest(())
    assert ([queue.name for queue in rest.queues], [gang.name for gang in rest.gangs]) == (["q"], ["g"])
    assert [pod.name for pod in rest.pods] == ["late"]
    assert rest.limits == ()
    assert server.params[-1] == {"fieldSelector": "status.state=waiting"}


async def test_only_nodes_that_have_changed_are_read_again() -> None:
    def answer(token: str, *names: str, gone: tuple[str, ...] = (), partial: bool = True) -> None:
        metadata = {"resourceVersion": token, "partial": partial}
        nodes = listed(*({"name": name} for name in names))
        server.answers[f"{BASE}/gpunodes"] = {**nodes, "metadata": metadata, "gone": gone}

    async def shown() -> list[str]:
        return [node.name for node in await source.nodes()]

    server = Server({})
    source = Aggregated(server.client)
    answer("one.s.1", "c", "a", partial=False)
    assert await shown() == ["a", "c"]
    answer("one.s.2", "b", gone=("a", "never"))
    assert await shown() == ["b", "c"]
    answer("two.s.7", "d", partial=False)
    assert await shown() == ["d"]
    answer("two.s.8")
    assert await shown() == ["d"]
    asked = [params["changedSince"] for params in server.params]
    assert asked == ["", "one.s.1", "one.s.2", "one.s.2,two.s.7"]
    for number in range(9):
        answer(f"r{number}.s.1", partial=False)
        await shown()
    assert len(server.params[-1]["changedSince"].split(",")) == 4


async def test_all_nodes_are_read_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({f"{BASE}/gpunodes": {**listed({"name": "n"}), "metadata": {"resourceVersion": "one.s.1"}}})
    source = Aggregated(server.client)
    await source.nodes()
    monkeypatch.setattr(sources, "WHOLE_EVERY_S", 0.0)
    await source.nodes()
    assert [params["changedSince"] for params in server.params] == ["", ""]


async def test_who_may_not_list_all_namespaces_sees_their_own_and_is_told_so() -> None:
    of = f"{BASE}/namespaces/team-a"
    server = Server({f"{of}/gangs": listed(GANG), f"{of}/gpupods": listed(PODS[0])})
    rest = await Aggregated(server.client).rest(["team-a", "team-b"])
    assert [gang.name for gang in rest.gangs] == ["g"]
    assert [pod.name for pod in rest.pods] == ["late"]
    assert rest.limits == (
        "gpuqueues are not shown: you may not list gpuqueues.visibility.gangshare.io",
        "gangs and pending pods are shown of the namespaces that you may list: team-a, team-b",
    )


async def test_only_so_many_namespaces_are_asked() -> None:
    server = Server({})
    await Aggregated(server.client).rest([f"n{number}" for number in range(MOST_NAMESPACES + 5)])
    assert sum("/namespaces/" in path and path.endswith("/gangs") for path in server.asked) == MOST_NAMESPACES


async def test_the_status_port_gives_the_same() -> None:
    books = {"nodes": [{"name": "n", "gpus": [GPU]}], "waiting": [PODS[0]], "groups": [GANG]}
    server = Server({"/inspect": books, "/queues": {"queues": [{"name": "q"}]}, "/explain/a%2Fb/p": {"name": "\x1b"}})
    source = Status(server.client)
    (gpu,) = (await source.nodes())[0].gpus
    assert (gpu.state, gpu.memory, gpu.slices) == ("part", 16384, 100)
    rest = await source.rest(())
    assert ([queue.name for queue in rest.queues], [pod.name for pod in rest.pods]) == (["q"], ["late"])
    assert msgspec.json.decode(await source.explain("a/b", "p")) == {"name": "\ufffd"}


async def test_one_node_is_read_with_its_links() -> None:
    node = {"name": "n", "links": [{"gpus": [0, 1], "kind": "NV4"}]}
    server = Server({f"{BASE}/gpunodes/n": {"status": node}, "/inspect/n": node})
    for source in (Aggregated(server.client), Status(server.client)):
        (link,) = (await source.node("n")).links
        assert (link.gpus, link.kind) == ((0, 1), "NV4")


async def test_a_what_if_is_asked_in_its_namespace() -> None:
    server = Server(
        {f"{BASE}/namespaces/a/whatifs": {"status": {"verdict": {"state": "now"}}}, "/whatif": {"x": "\x1b"}}
    )
    answer = await Aggregated(server.client).what_if("a", b'{"kind":"WhatIf"}')
    assert msgspec.json.decode(answer) == {"verdict": {"state": "now"}}
    assert server.bodies == [{"kind": "WhatIf"}]
    assert msgspec.json.decode(await Status(server.client).what_if("a", b"{}")) == {"x": "\ufffd"}
