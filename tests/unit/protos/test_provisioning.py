"""ProvisioningRequests as the API server shows them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protos.contract import names, provisioning
from protos.contract.bounds import PROVISIONING_TEXT
from protos.contract.objects import OwnerReference

OWNER = OwnerReference("PodGroup", "g", "uid-g", api_version="gangshare.io/v1alpha1")
NAME = provisioning.name("default", "g", 3)
REQUEST = provisioning.Request(namespace="default", name=NAME, uid="", group="g", attempt=3)


def shown(manager: str = names.EXTENDER, **changes: Any) -> dict[str, Any]:
    """Our request, as the API server shows it."""
    made = provisioning.body(REQUEST, OWNER, "check-capacity.autoscaling.x-k8s.io", [4])
    fields: dict[str, Any] = {"f:spec": {"f:podSets": {}}}
    made["metadata"] |= {"uid": "uid-r", "managedFields": [{"manager": manager, "fieldsV1": fields}]} | changes
    return made


def decoded(made: dict[str, Any]) -> provisioning.Request | None:
    return provisioning.decode(msgspec.json.encode(made))


def condition(kind: str, status: str = "True", message: str = "") -> dict[str, str]:
    time = "2026-01-31T12:00:00Z"
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": time, "reason": "r"}


def test_our_request_is_read_back() -> None:
    found = decoded(shown())
    assert found == msgspec.structs.replace(REQUEST, uid="uid-r")


@pytest.mark.parametrize(
    "forged",
    [
        shown(manager="kubectl"),
        shown(name="gangshare-000000000000-3"),
        shown(labels={}),
        shown(managedFields=[]),
        shown(managedFields="no list"),
        shown(annotations={names.GROUP: "another"}),
    ],
)
def test_a_request_that_no_extender_made_is_not_believed(forged: dict[str, Any]) -> None:
    assert decoded(forged) is None


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ""),
        ([condition("Accepted")], "Accepted"),
        ([condition("Accepted"), condition("Provisioned", "False")], "Accepted"),
        ([condition("Accepted"), condition("Provisioned")], "Provisioned"),
        ([condition("Provisioned"), condition("BookingExpired")], "BookingExpired"),
        ([condition("Accepted"), condition("Failed")], "Failed"),
        ([condition("Provisioned"), condition("CapacityRevoked")], "CapacityRevoked"),
    ],
)
def test_its_conditions_say_its_state(conditions: list[dict[str, str]], state: str) -> None:
    found = decoded({**shown(), "status": {"conditions": conditions}})
    assert found is not None
    assert found.state == state


def test_a_message_is_cut_and_printable() -> None:
    conditions = [condition("Failed", message="\x1b[31m" + "x" * 9999)]
    found = decoded({**shown(), "status": {"conditions": conditions}})
    assert found is not None
    assert len(found.message) == PROVISIONING_TEXT.most
    assert found.message.isprintable()


def test_a_template_has_what_decides_where_a_pod_fits_and_no_secrets() -> None:
    pod = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "env": [{"name": "PASSWORD"}], "resources": {"limits": {"cpu": "1"}}}
            ],
            "volumes": [{"name": "v"}],
            "nodeName": "",
            "schedulingGates": [{"name": names.PLAN_GATE}],
            "nodeSelector": {"zone": "a"},
        },
    }
    made = provisioning.template(REQUEST, 0, OWNER, pod)
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    assert made["template"] == {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"nodeSelector": {"zone": "a"}, "containers": [container]},
    }
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-g"
