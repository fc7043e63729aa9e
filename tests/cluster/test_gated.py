"""The stories about gated gangs on the real cluster, with the admission policy or the webhook that its version has."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from protos.contract import names
from tests import gating
from tests.cluster import assets, host
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, beta_policies, gate_policy
from tests.cluster.process import wait_for
from tests.cluster.world import MACHINES
from tests.scenarios.gated_stories import *  # noqa: F403  # the stories are the tests of this module

PODS = "/api/v1/namespaces/default/pods"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.core]


@pytest.fixture(scope="module")
def sharing(able_machine: None) -> Iterator[Gangshare]:
    minor = assets.provide().minor
    with Cluster.up(nodes=2, apiserver_args=beta_policies(minor)) as cluster:
        made = by_policy(cluster, policy) if (policy := gate_policy(minor)) else by_webhook(cluster)
        pod = gating.a_new_pod(annotations=gating.IN_A_GROUP)
        born = f"{PODS}?dryRun=All"
        wait_for(lambda: names.PLAN_GATE in gating.gates(cluster.api.post(born, pod)), 60, "pods that are gated")
        yield made


def by_policy(cluster: Cluster, component: str) -> Gangshare:
    return Gangshare(cluster, MACHINES, components=[component]).start()


def by_webhook(cluster: Cluster) -> Gangshare:
    """The API server asks the extender itself: a cluster without kube-proxy knows no Services."""
    port = host.free_port()
    args = [f"--gate-webhook-listen=127.0.0.1:{port}", f"--scheduler-names={names.PROFILE}"]
    made = Gangshare(cluster, MACHINES, components=["gate-webhook"], extender_args=args).start()
    asked = {"service": None, "url": f"https://localhost:{port}{names.WEBHOOK_PATH}"}
    patch = json.dumps({"webhooks": [{"name": "plan.gangshare.io", "clientConfig": asked}]})
    cluster.kubectl("patch", "mutatingwebhookconfiguration", names.WEBHOOK, "--patch", patch)
    return made
