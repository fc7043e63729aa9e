import json
from typing import Any

import msgspec
import pytest

from extender.cli import explain, ranking
from extender.cli.errors import CommandError
from extender.wire.answers import Group, Node, Pod
from tests.unit.cli import books
from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import Ran, gangshare


@pytest.fixture
def ask(status_port: StatusPort, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def explain_pod(*args: str) -> Ran:
        return gangshare(capsys, "explain", "pod", *args, "--server", status_port.url)

    return explain_pod


def told(name: str, **said: Any) -> list[str]:
    """What is told of the pod of that name in the books, with changes."""
    pod = next(pod for pod in (*books.BOOKS["pods"], *books.BOOKS["waiting"]) if pod["name"] == name)
    node = next((node for node in books.BOOKS["nodes"] if node["name"] == pod.get("node")), None)
    return list(explain.lines(msgspec.convert({**pod, **said}, Pod), msgspec.convert(node, Node | None)))


def test_a_bound_pod_is_told_its_gpus() -> None:
    runs = {"state": "running", "headline": "runs on node-a", "advice": "nothing"}
    assert told("train", verdict=runs) == [
        "default/train runs on node-a",
        "  what to do: nothing",
        "  container main: GPU 0 (NVIDIA A100-SXM4-80GB, GPU-a0): 10 GiB, 25/100 slices",
    ]


def test_a_pod_on_its_way_is_told_where_it_goes() -> None:
    assert told("big") == [
        "default/big is binding",
        "  container main: GPU 1 (NVIDIA A100-SXM4-80GB, GPU-a1): whole",
    ]


VERDICT = {"state": "waiting", "headline": "waits for free GPUs (NoRoom)", "advice": "wait"}


def test_the_first_line_of_a_waiting_pod_is_the_verdict_and_the_second_what_to_do() -> None:
    assert told("hungry", verdict=VERDICT) == [
        "ml/hungry waits for free GPUs (NoRoom)",
        "  what to do: wait",
        "  no GPU with 90 GiB free",
        "  needs 90 GiB on one GPU; freest: node-a GPU 0 with 69 GiB",
        "  it has waited for 3m5s",
    ]


def test_the_nodes_are_told_by_reason_in_one_line() -> None:
    counts = [{"nodes": 12, "why": "no whole GPU free"}, {"nodes": 3, "why": "model T4"}, {"nodes": 1, "why": ""}]
    assert told("hungry", nodes=counts)[-1] == "  12 nodes: no whole GPU free · 3: model T4 · 1: would take it"
    assert told("hungry", nodes=counts[2:])[-1] == "  1 node: would take it"


def test_an_older_extender_gives_no_verdict_and_the_state_is_told() -> None:
    assert told("hungry")[0] == "ml/hungry is waiting"


def test_a_pod_of_unknown_place_is_told_so() -> None:
    where, problem, place = told("lost")
    assert where == "default/lost is bound"
    assert "malformed" in problem
    assert "its GPU is unknown" in place


def test_a_gpu_that_is_no_longer_there_has_no_model() -> None:
    share = {"uuid": "GPU-old", "index": 7, "mem": 3}
    assert told("train", allocation=books.an_allocation("main", share))[-1] == (
        "  container main: GPU 7 (unknown model, GPU-old): 3 GiB"
    )


def ranked(*ranks: dict[str, Any]) -> list[str]:
    return list(ranking.lines(msgspec.convert({**books.BOOKS["pods"][0], "ranking": ranks}, Pod)))


def test_nodes_are_told_with_the_scores_there_and_their_terms_and_what_these_are() -> None:
    assert ranked(
        {"node": "node-b", "score": 0, "terms": {}},
        {"node": "node-a", "score": -137, "terms": {"fragments": 112, "spare": 25}, "here": True},
    ) == [
        "",
        "  NODE           SCORE  FRAGMENTS  SPARE",
        "  node-b             0          –      –",
        "  node-a (here)   -137        112     25",
        "  terms: thousandths of a GPU that it costs others; score: minus their sum, the highest is best"
        "; here: as if the pod were not there yet",
    ]


def test_of_a_pod_that_is_to_be_spread_its_emptiness_is_told() -> None:
    *_, row, units = ranked({"node": "node-a", "score": 300, "terms": {"emptiness": 800, "links": 500}})
    assert row == "  node-a    300        800    500"
    assert units == "  terms: thousandths; score: emptiness less links, the highest is best"


def test_where_no_node_takes_it_none_is_told() -> None:
    assert ranked() == []


def test_a_pod_without_gpus_is_not_said_to_be_on_some() -> None:
    assert told("lost", problem=None, asksGpus=False) == ["default/lost is bound", "  it requests no GPU"]


def test_conflicts_of_its_gang_are_told_with_the_pod() -> None:
    assert "  conflict: minimum differs: 3 by a, 4 by b; 4 holds" in told(
        "hungry", conflicts=["minimum differs: 3 by a, 4 by b; 4 holds"]
    )


def test_the_pod_is_named_with_or_without_its_namespace(ask) -> None:  # type: ignore[no-untyped-def]
    assert ask("ml/hungry").out == ask("hungry", "-n", "ml").out
    assert "default/train" in ask("train").out


def test_json_is_the_pod_alone(ask) -> None:  # type: ignore[no-untyped-def]
    said = json.loads(ask("ml/hungry", "-o", "json").out)
    assert (said["name"], said["code"], said["since"]) == ("hungry", "NoRoom", 185.4)


def test_an_unknown_pod_is_an_error_that_names_it(ask) -> None:  # type: ignore[no-untyped-def]
    ran = ask("default/nobody")
    assert ran.code == 1
    assert "default/nobody" in ran.err


@pytest.mark.parametrize("text", ["", "/p", "a/b/c", "a/"])
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="NAMESPACE/NAME"):
        explain.key("pod", text, "default")


def test_a_gang_is_told_with_its_members_and_why_it_waits() -> None:
    members = [
        {"name": "launcher", "uid": "l", "role": "launcher", "stage": "In_bind", "node": "node-a"},
        {"name": "worker-0", "uid": "w", "stage": "Absent"},
    ]
    slots = [
        {"name": "worker-1", "role": "worker", "node": "node-b", "gpus": [0, 1], "seconds": 250.0},
        {"name": "ps-0", "node": "node-a", "gpus": [], "seconds": 9.5},
    ]
    conflicts = ["minimum differs: 3 by a, 4 by b; 4 holds"]
    verdict = {"headline": "waits for its members (GangAssembling)", "advice": "create them"}
    said = {**books.BOOKS["groups"][0], "members": members, "conflicts": conflicts, "slots": slots, "verdict": verdict}
    assert list(explain.group_lines(msgspec.convert(said, Group))) == [
        "gang ml/resnet waits for its members (GangAssembling)",
        "  what to do: create them",
        "  it is Assembling for 1m5s",
        "  gang ml/resnet waits for its members",
        "  1 of 4 members exist",
        "  minimum 4: 1 exist, 0 bound, 0 succeeded",
        "  conflict: minimum differs: 3 by a, 4 by b; 4 holds",
        "  launcher (launcher): in bind on node-a",
        "  worker-0: absent",
        "  GPU 0, 1 of node-b is held for 4m10s for the replacement of worker-1",
        "  a place on node-a is held for 9s for the replacement of ps-0",
    ]


def test_a_gang_is_asked_for_by_name(status_port: StatusPort, capsys: pytest.CaptureFixture[str]) -> None:
    told = gangshare(capsys, "explain", "group", "resnet", "-n", "ml", "--server", status_port.url)
    assert "1 of 4 members exist" in told.out
    found = gangshare(capsys, "explain", "group", "ml/resnet", "-o", "json", "--server", status_port.url)
    assert json.loads(found.out)["minMember"] == 4
    missing = gangshare(capsys, "explain", "group", "ml/nobody", "--server", status_port.url)
    assert missing.code == 1
    assert "ml/nobody" in missing.err


def test_a_gang_or_pod_that_waits_is_told_its_queue_and_its_place_in_line() -> None:
    said = {"namespace": "default", "name": "g", "phase": "Waiting", "queue": "team-a", "place": 2, "inLine": 5}
    said["pendingPods"] = 9
    assert "  queue team-a: number 2 of 5 pending workloads in it (9 pending pods)" in explain.group_lines(
        msgspec.convert(said, Group)
    )
    pod = {**said, "uid": "u", "sentence": "why"}
    assert "  queue team-a: number 2 of 5 pending workloads in it (9 pending pods)" in explain.lines(
        msgspec.convert(pod, Pod), None
    )
    runs = {**said, "phase": "Running", "place": 0, "pendingPods": 0}
    assert "  queue team-a" in explain.group_lines(msgspec.convert(runs, Group))


def test_the_first_in_line_is_told_when_it_starts_after_whom_and_where() -> None:
    first = {"seconds": 720, "sure": False, "nodes": ["n1", "n2"], "after": "ml/train-7"}
    said = {"namespace": "default", "name": "g", "phase": "Waiting", "queue": "a", "earliest": first}
    told = "\n".join(explain.group_lines(msgspec.convert(said, Group)))
    when = "starts in 12m at the earliest, once ml/train-7 has ended, on n1, n2"
    assert f"  first in its queue: {when} (a guess: not all run times are known)" in told
    pod = {
        "namespace": "default",
        "name": "p",
        "uid": "u",
        "sentence": "why",
        "earliest": {"seconds": 0, "nodes": ["n1"]},
    }
    assert "  first in its queue: starts at any moment, on n1" in explain.lines(msgspec.convert(pod, Pod), None)


def test_who_stands_behind_the_first_in_line_is_told_when_that_starts() -> None:
    first = {"who": "gang default/big", "seconds": 720, "nodes": ["n1"], "after": "ml/train-7"}
    said = {"namespace": "default", "name": "p", "uid": "u", "sentence": "why", "queue": "a", "first": first}
    told = explain.lines(msgspec.convert(said, Pod), None)
    when = "starts in 12m at the earliest, once ml/train-7 has ended, on n1"
    assert f"  gang default/big is first in its queue: {when}" in told


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_what_a_tenant_wrote_does_not_act_on_the_terminal(
    capsys: pytest.CaptureFixture[str], status_port: StatusPort, form: str
) -> None:
    path = "/explain/ml/hungry"
    pod = json.loads(status_port.answers[path])
    pod["numbers"] = "model \x1b[2J\x9b31m\u202e*: it has none"
    status_port.answers[path] = json.dumps(pod, ensure_ascii=False).encode()
    ran = gangshare(capsys, "explain", "pod", "hungry", "-n", "ml", "-o", form, "--server", status_port.url)
    assert "it has none" in ran.out
    assert not {"\x1b", "\x9b", "\u202e"} & set(ran.out)
    assert "\\u001b" not in ran.out
