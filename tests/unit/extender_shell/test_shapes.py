"""The extender's JSON, against requests recorded from a kube-scheduler 1.34.4."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.wire import shapes

CAPTURED = Path(__file__).parent / "captured"


def captured(name: str) -> bytes:
    return (CAPTURED / f"{name}.json").read_bytes()


def read(answer: Any) -> Any:
    return msgspec.json.decode(shapes.encode(answer))


def nulls(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in nulls(item)]
    if isinstance(value, list):
        return [found for item in value for found in nulls(item)]
    return [value] if value is None else []


def test_filter_by_names_reads_the_pod_and_the_names() -> None:
    asked = shapes.args(captured("filter-names"))
    assert asked.pod.metadata.name == "p1"
    assert asked.pod.spec.containers[0].resources is not None
    assert asked.pod.spec.containers[0].resources.limits["gangshare.io/gpu-mem"] == "4"
    assert asked.candidates() == ("node-0", "node-1") or asked.candidates() == ("node-1", "node-0")
    assert asked.nodes is None


def test_filter_by_objects_is_answered_by_the_same_objects() -> None:
    asked = shapes.args(captured("filter-nodes"))
    assert sorted(asked.candidates()) == ["node-0", "node-1"]
    sent = {node["metadata"]["name"]: node for node in msgspec.json.decode(captured("filter-nodes"))["Nodes"]["items"]}
    assert read(shapes.kept(asked, ["node-1"])) == {"Nodes": {"items": [sent["node-1"]]}}


def test_filter_by_names_is_answered_by_names_alone() -> None:
    assert read(shapes.kept(shapes.args(captured("filter-names")), ["node-1"])) == {"NodeNames": ["node-1"]}


def test_a_refusal_of_every_node_is_one_sentence_that_in_tree_preemption_leaves_alone() -> None:
    told = read(shapes.refused(shapes.args(captured("filter-names")), "no GPU with 24 GiB free"))
    assert told == {"NodeNames": [], "FailedAndUnresolvableNodes": {"gangshare": "no GPU with 24 GiB free"}}


def test_a_sentence_with_what_a_tenant_wrote_is_printable() -> None:
    told = read(shapes.refused(shapes.args(captured("filter-names")), "matches model \x1b[2J*"))
    assert told["FailedAndUnresolvableNodes"] == {"gangshare": "matches model \ufffd[2J*"}


def test_scores_are_whole_numbers_also_where_they_are_zero() -> None:
    assert shapes.encode(shapes.scores({"a": 10, "b": 0})) == b'[{"Host":"a","Score":10},{"Host":"b","Score":0}]'


@pytest.mark.parametrize("form", ["preempt-meta", "preempt-victims"])
def test_preempt_reads_victims_of_either_form_and_answers_uids(form: str) -> None:
    asked = shapes.preemption(captured(form))
    assert asked.pod.metadata.name == "urgent"
    victims = {node: found.uids() for node, found in asked.victims().items()}
    assert victims
    assert all(len(uid) == 36 for uids in victims.values() for uid in uids)
    told = read(shapes.surviving(asked, victims))
    assert {
        node: tuple(pod["UID"] for pod in found["Pods"]) for node, found in told["NodeNameToMetaVictims"].items()
    } == victims


def test_preempt_answers_no_candidate_by_an_empty_object() -> None:
    assert (
        shapes.encode(shapes.surviving(shapes.preemption(captured("preempt-meta")), {}))
        == b'{"NodeNameToMetaVictims":{}}'
    )


def test_preempt_takes_nodes_without_victims_and_nulls() -> None:
    pod = msgspec.json.decode(captured("preempt-meta"))["Pod"]
    victims = {"a": {"Pods": None, "NumPDBViolations": 0}, "b": None, "c": {"Pods": [], "NumPDBViolations": 2}}
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    asked = shapes.preemption(msgspec.json.encode(body))
    assert {node: found.uids() for node, found in asked.victims().items()} == {"a": (), "b": (), "c": ()}
    told = read(shapes.surviving(asked, {"c": ["u1"]}))
    assert told == {"NodeNameToMetaVictims": {"c": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 2}}}


def test_bind_reads_pod_and_node() -> None:
    asked = shapes.binding(captured("bind"))
    assert (asked.pod_namespace, asked.pod_name, asked.node[:5]) == ("default", "p1", "node-")
    assert len(asked.pod_uid) == 36


def test_bind_answers_success_by_an_empty_object() -> None:
    assert shapes.encode(shapes.BindingResult()) == b"{}"
    assert shapes.encode(shapes.BindingResult("no")) == b'{"Error":"no"}'


def test_no_answer_holds_null() -> None:
    names, objects = shapes.args(captured("filter-names")), shapes.args(captured("filter-nodes"))
    preempt = shapes.preemption(captured("preempt-meta"))
    answers = [
        shapes.kept(names, []),
        shapes.kept(objects, []),
        shapes.refused(names, "no"),
        shapes.refused(objects, "no"),
        shapes.scores({}),
        shapes.surviving(preempt, {"node-0": []}),
        shapes.BindingResult(),
    ]
    assert [nulls(read(answer)) for answer in answers] == [[]] * len(answers)


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"Pod": 3}', b"\xff", b"{}", b"[" * 100_000])
def test_a_body_that_no_scheduler_sends_is_refused_in_words(body: bytes) -> None:
    for read_it in (shapes.args, shapes.preemption, shapes.binding):
        with pytest.raises(shapes.WireError, match="not what kube-scheduler sends"):
            read_it(body)
