"""`gangshare queue create|stop|resume` and `gangshare move` between a real extender and an embedded API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.cli import as_user, move, queue_verbs
from extender.cli.errors import CommandError
from extender.sim.apiserver.api import Api
from extender.sim.apiserver.resources import CRDS, PODS
from protos.contract import names
from tests.scenarios.queue_stories import definitions
from tests.unit.extender_shell.definitions import OWN, VOLCANO, define
from tests.unit.extender_shell.test_queues import capability, kind, put, refused
from tests.unit.extender_shell.world import ADMIN, Json, World, add_pod, read_pod, until

pytestmark = pytest.mark.usefixtures("quick")
IN_A = {names.QUEUE: "team-a"}


@pytest.fixture
def api(api: Api) -> Api:
    """Queues and PodGroups are defined, ours and Volcano's."""
    for definition in definitions():
        api.create(CRDS, "", definition, ADMIN)
    for version in (OWN, VOLCANO):
        define(api, version)
    return api


class User:
    """Somebody with a kubeconfig, and the two queues that they know."""

    def __init__(self, cluster: World, kubeconfig: Path) -> None:
        self.cluster, self.kubeconfig = cluster, str(kubeconfig)
        self.said: list[str] = []

    async def queues(self) -> None:
        put(self.cluster, "team-a", capability={"gpus": 1})
        put(self.cluster, "team-b", capability={"gpus": 2})
        put(self.cluster, "small", parent="tiny")
        put(self.cluster, "tiny", capability={"gpus": "500m"})
        await until(lambda: capability(self.cluster, "tiny"), "the queues are known")

    async def moves(self, what: str, name: str, to: str) -> str:
        """What the command says."""
        asked = move.Asked(f"default/{name}", to, self.cluster.status, self.kubeconfig, "")
        await asyncio.to_thread(move.pod if what == "pod" else move.group, asked, self.said.append)
        return self.said[-1]

    async def create(self, name: str, *, dry: bool = False, **fields: Any) -> Json:
        made = queue_verbs.manifest(name, fields)
        stored: Json = msgspec.json.decode(await queue_verbs.create(made, self.kubeconfig, "", dry=dry))
        return stored

    async def close(self, name: str, *, closed: bool) -> None:
        await queue_verbs.close(name, self.kubeconfig, "", closed=closed)


@pytest.fixture
def user(cluster: World, tmp_path: Path) -> User:
    return User(cluster, cluster.server.write_kubeconfig(tmp_path / "kubeconfig"))


def in_gang(name: str, **more: str) -> dict[str, str]:
    return {names.GROUP: name, names.MIN_MEMBER: "2", **more}


def queue_of(cluster: World, name: str) -> str:
    uid = cluster.pod(name)["metadata"]["uid"]
    tenancy = cluster.extender.engine.tenancy.queues
    return tenancy.home(uid).name


# -- queues


async def test_a_queue_is_created_with_what_the_user_says_of_it(user: User) -> None:
    stored = await user.create("team-a", capability={"gpus": "2"}, weight=3, namespaces=["default"], parent="")
    assert stored["spec"] == {"capability": {"gpus": "2"}, "weight": 3, "namespaces": ["default"]}
    assert "managedFields" not in stored["metadata"]
    await until(lambda: capability(user.cluster, "team-a") == {"gpus": 2_000_000}, "the queue is known")
    made = user.cluster.api.get(kind(user.cluster.api), ("", "team-a")).obj
    assert made["metadata"]["managedFields"][0]["manager"] == names.COMMANDS
    with pytest.raises(CommandError, match=r"^queue 'team-a' cannot be created: it exists already$"):
        await user.create("team-a")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"capability": {"gpu": "2"}},
            "^queue 'q': spec cannot be read: capability names 'gpu': expected gpus, ",
        ),
        ({"weight": 0}, "queue 'q': spec cannot be read: weight is 0: expected a whole number from 1 to 10000"),
        ({"deserved": {"gpus": "3"}, "capability": {"gpus": "2"}}, "deserved.gpus is '3': expected no more than"),
    ],
)
def test_what_no_queue_may_say_is_refused_before_anything_is_sent(fields: Json, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        queue_verbs.manifest("q", fields)


def test_amounts_are_pairs() -> None:
    assert queue_verbs.amounts("--capability", ["gpus=8,cpu=64", "pods=3"]) == {"gpus": "8", "cpu": "64", "pods": "3"}
    for wrong in ("gpus", "gpus=", "=8", "", "gpus=8,"):
        with pytest.raises(CommandError, match=rf"--deserved is {wrong!r}: expected RESOURCE=AMOUNT"):
            queue_verbs.amounts("--deserved", [wrong])


async def test_a_queue_that_is_stopped_starts_nothing_until_it_is_resumed(user: User) -> None:
    await user.queues()
    add_pod(user.cluster.api, "p1", annotations=IN_A, mem=8)
    await user.close("team-a", closed=True)
    queues = user.cluster.extender.engine.tenancy.queues
    await until(lambda: queues.queue_nodes["team-a"].shut, "the queue is closed")
    assert await refused(user.cluster, "p1") == "queue team-a is closed; its workloads wait until it is open"
    await user.close("team-a", closed=False)
    await until(lambda: not queues.queue_nodes["team-a"].shut, "the queue is open")
    assert await refused(user.cluster, "p1") == ""


async def test_an_api_server_that_refuses_is_told_in_one_sentence(user: User) -> None:
    with pytest.raises(
        CommandError, match=r"^queue 'nobody' cannot be stopped: queues.gangshare.io .nobody. not found$"
    ):
        await user.close("nobody", closed=True)
    with pytest.raises(CommandError, match=r"^queue 'q' cannot be created: the API server refuses: .* knows no dryRun"):
        await user.create("q", dry=True)
    user.kubeconfig = "/nowhere/kubeconfig"
    with pytest.raises(CommandError, match=r"^queue 'q' cannot be resumed: .*/nowhere/kubeconfig"):
        await user.close("q", closed=False)


# -- moves


async def test_a_pending_pod_goes_to_the_queue_that_it_is_moved_to(user: User) -> None:
    await user.queues()
    add_pod(user.cluster.api, "named", annotations=IN_A, mem=8)
    add_pod(user.cluster.api, "plain", mem=8)
    await until(lambda: len(user.cluster.extender.engine.pods) == 2, "the pods are known")
    for name in ("named", "plain"):
        assert await user.moves("pod", name, "team-b") == f"pod default/{name} is in queue team-b"
        assert queue_of(user.cluster, name) == "team-b"
        assert read_pod(user.cluster.api, name)["metadata"]["annotations"][names.QUEUE] == "team-b"
        await user.moves("pod", name, "team-b")
        assert user.cluster.server.writes.count(("PATCH", f"/api/v1/namespaces/default/pods/{name}")) == 1


async def test_a_queue_that_is_not_there_or_can_never_take_it_is_refused(user: User) -> None:
    await user.queues()
    add_pod(user.cluster.api, "p", mem=16)
    await until(lambda: user.cluster.extender.engine.pods, "the pod is known")
    with pytest.raises(CommandError, match=r"^queue 'nowhere' not found: `gangshare queues` shows all queues$"):
        await user.moves("pod", "p", "nowhere")
    with pytest.raises(CommandError) as refusal:
        await user.moves("pod", "p", "small")
    assert str(refusal.value) == (
        "pod default/p can never start in queue small: queue tiny may have 0.5 GPUs, and it asks 1"
    )
    assert queue_of(user.cluster, "p") == "default"


async def test_only_a_pending_pod_of_no_gang_is_moved(user: User) -> None:
    await user.queues()
    add_pod(user.cluster.api, "runs", annotations=IN_A, mem=8, node="node-a")
    for name in ("g-0", "g-1"):
        add_pod(user.cluster.api, name, annotations=in_gang("g"), mem=16)
    await until(lambda: len(user.cluster.extender.engine.pods) == 3, "the pods are known")
    with pytest.raises(CommandError, match=r"^pod default/runs is bound on node-a: only pending pods change"):
        await user.moves("pod", "runs", "team-b")
    with pytest.raises(CommandError, match=r"its gang: `gangshare move group default/g --queue team-b`"):
        await user.moves("pod", "g-0", "team-b")
    with pytest.raises(CommandError, match=r"^pod default/nobody not found"):
        await user.moves("pod", "nobody", "team-b")
    with pytest.raises(CommandError, match=r"^group default/nobody not found"):
        await user.moves("group", "nobody", "team-b")


async def test_a_gang_goes_with_all_its_pods_whichever_keys_name_their_queue(user: User) -> None:
    await user.queues()
    theirs = {"volcano.sh/queue-name": "team-a", "scheduling.volcano.sh/queue-name": "team-a"}
    for number, more in enumerate((IN_A, theirs, {})):
        add_pod(user.cluster.api, f"g-{number}", annotations=in_gang("g", **more), mem=16)
    await until(lambda: len(user.cluster.extender.engine.pods) == 3, "the pods are known")
    said = await user.moves("group", "g", "team-b")
    assert said == "gang default/g is in queue team-b; later pods of its controller name the queue of its template"
    for number in range(3):
        assert queue_of(user.cluster, f"g-{number}") == "team-b"
    notes = read_pod(user.cluster.api, "g-1")["metadata"]["annotations"]
    assert {key: notes[key] for key in theirs} == dict.fromkeys(theirs, "team-b")
    (known,) = user.cluster.extender.engine.gangs.roster.known.values()
    assert not known.gang.terms.conflicts


@pytest.mark.parametrize("version", [OWN, VOLCANO])
async def test_a_gang_that_a_podgroup_declares_goes_with_it(user: User, version: str) -> None:
    await user.queues()
    group, _, number = version.partition("/")
    podgroups = user.cluster.api.catalogue.find(group, number, "podgroups")
    assert podgroups is not None
    spec = {"minMember": 2, "queue": "team-a"}
    user.cluster.api.create(podgroups, "default", {"metadata": {"name": "g"}, "spec": spec}, ADMIN)
    key = names.GROUP if version == OWN else "scheduling.k8s.io/group-name"
    for name in ("g-0", "g-1"):
        add_pod(user.cluster.api, name, annotations={key: "g"}, mem=16)
    await until(lambda: len(user.cluster.extender.engine.pods) == 2, "the pods are known")
    await until(lambda: queue_of(user.cluster, "g-0") == "team-a", "the PodGroup is known")
    await user.moves("group", "g", "team-b")
    assert queue_of(user.cluster, "g-1") == "team-b"
    assert user.cluster.api.get(podgroups, ("default", "g")).obj["spec"]["queue"] == "team-b"
    assert names.QUEUE not in read_pod(user.cluster.api, "g-0")["metadata"]["annotations"]


async def test_a_gang_that_is_too_large_for_the_queue_or_runs_stays(user: User) -> None:
    await user.queues()
    for name in ("g-0", "g-1"):
        add_pod(user.cluster.api, name, annotations=in_gang("g"), mem=16)
        add_pod(user.cluster.api, name.replace("g", "r"), annotations=in_gang("r"), mem=1, node="node-a")
    await until(lambda: len(user.cluster.extender.engine.pods) == 4, "the pods are known")
    with pytest.raises(
        CommandError, match=r"gang default/g can never start in queue team-a: .* 1 GPUs, and it asks 2$"
    ):
        await user.moves("group", "g", "team-a")
    with pytest.raises(CommandError, match=r"^gang default/r is running: only pending gangs change their queue$"):
        await user.moves("group", "r", "team-b")


async def test_a_gang_whose_queue_is_named_otherwise_is_told_to_be_where_it_was(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    await user.queues()
    monkeypatch.setattr(move, "SEEN_S", 0.5)
    spec = "virtualCluster: team-a\naffinityGroup: {name: g, members: [{podNumber: 2, leafCellNumber: 1}]}"
    for name in ("g-0", "g-1"):
        add_pod(user.cluster.api, name, annotations={"hivedscheduler.microsoft.com/pod-scheduling-spec": spec}, mem=16)
    await until(lambda: len(user.cluster.extender.engine.pods) == 2, "the pods are known")
    with pytest.raises(
        CommandError, match=r"gang default/g was changed, and is in queue team-a still: the queue differs"
    ):
        await user.moves("group", "g", "team-b")


async def test_a_move_that_ended_halfway_is_finished_by_the_next(user: User) -> None:
    await user.queues()
    put(user.cluster, "free")
    for name, queue in (("g-0", "free"), ("g-1", "free"), ("g-2", "zoo")):
        notes = {names.GROUP: "g", names.MIN_MEMBER: "4", names.QUEUE: queue}
        add_pod(user.cluster.api, name, annotations=notes, mem=16)
    await until(lambda: len(user.cluster.extender.engine.pods) == 3, "the pods are known")
    (known,) = user.cluster.extender.engine.gangs.roster.known.values()
    assert (known.gang.terms.queue, len(known.gang.terms.conflicts)) == ("free", 1)
    await user.moves("group", "g", "free")
    assert read_pod(user.cluster.api, "g-2")["metadata"]["annotations"][names.QUEUE] == "free"


async def test_pods_that_are_gone_or_were_replaced_are_left_alone(user: User) -> None:
    await user.queues()
    add_pod(user.cluster.api, "p", annotations=IN_A, mem=8)
    asked = move.Asked("default/p", "team-b", user.cluster.status, user.kubeconfig, "")
    async with as_user.client(user.kubeconfig, "", "nothing") as client:
        await move._rename_pods(client, asked, [("p", "another"), ("gone", "u")])
    assert read_pod(user.cluster.api, "p")["metadata"]["annotations"][names.QUEUE] == "team-a"
    assert user.cluster.api.store.get(PODS, ("default", "gone")) is None
