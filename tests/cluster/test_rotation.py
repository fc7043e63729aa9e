"""Certificates and tokens are replaced on a real cluster while a pod runs and a gang waits, without a restart."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.contract import names
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, Gangshare, Pair, a_gpu_pod
from tests.cluster.process import wait_for

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


class Token:
    """The file of the extender's token. Each token counts as long as a Secret of its name is there.

    kube-scheduler keeps another token: it reads a file once a minute, which is enough for the kubelet's own rotation.
    """

    def __init__(self, pair: Pair, cluster: Cluster) -> None:
        self.file, self.cluster, self.now = cluster.dir / "token", cluster, ""
        self.replace("first")
        config = json.loads(pair.kubeconfig.read_text())
        ours = pair.kubeconfig
        pair.kubeconfig = Path(shutil.copy(ours, ours.with_suffix(".scheduler")))
        config["users"][0]["user"] = {"tokenFile": str(self.file)}
        ours.write_text(json.dumps(config))

    def replace(self, name: str) -> None:
        """As the kubelet does."""
        bound = self.cluster.api.post(SECRETS, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}})
        self.now = self.cluster.plane.token(NAMESPACE, names.SCHEDULER, bound_to={**bound, "kind": "Secret"})
        fresh = self.file.with_suffix(".new")
        fresh.write_text(self.now)
        fresh.replace(self.file)

    def revoke(self, name: str, token: str) -> None:
        """Returns once the API server refuses the token."""
        self.cluster.api.delete(f"{SECRETS}/{name}")
        bearer = Api(self.cluster.plane.port, self.cluster.plane.ca, token=token)

        def refused() -> bool:
            try:
                bearer.get("/api/v1/nodes")
            except ApiError as error:
                return error.status == 401
            return False

        wait_for(refused, 30, f"end of the token {name}")


@pytest.fixture(scope="module")
def sharing(able_machine: None) -> Iterator[Gangshare]:
    with Cluster.up(nodes=1, scheduler=False) as cluster:
        yield Gangshare(cluster, {"node-1": "t4x4"}, tls=True)


def served(sharing: Gangshare) -> str:
    return ssl.get_server_certificate(("127.0.0.1", sharing.pair.verbs))


def member(number: int) -> Json:
    return a_gpu_pod(f"train-{number}", mem=4, annotations={names.GROUP: "train", names.MIN_MEMBER: "3"})


def waiting(sharing: Gangshare) -> bool:
    return all("nodeName" not in sharing.cluster.pod(f"train-{number}")["spec"] for number in range(2))


def test_nothing_is_lost_when_the_token_and_the_certificate_are_replaced(sharing: Gangshare) -> None:
    cluster = sharing.cluster
    token = Token(sharing.pair, cluster)
    sharing.start()
    stays = sharing.run(a_gpu_pod("stays", mem=4))
    for number in range(2):
        cluster.create_pod(member(number))
    wait_for(lambda: len(sharing.pair.inspect()["waiting"]) == 2, 30, "two members that wait")
    pid, certificate, former = sharing.pair.extender.pid, served(sharing), token.now

    token.replace("second")
    token.revoke("first", former)
    after = sharing.run(a_gpu_pod("after-the-token", mem=4))
    assert waiting(sharing)

    assert sharing.tls is not None
    sharing.tls.issue("extender", user="gangshare", sans=["IP:127.0.0.1"])
    wait_for(lambda: served(sharing) != certificate, 30, "the new certificate")
    cluster.create_pod(member(2))
    for number in range(3):
        cluster.wait_phase(f"train-{number}", "Running")
    assert sharing.pair.extender.pid == pid
    for pod in (stays, after):
        assert cluster.pod(pod["metadata"]["name"])["metadata"]["uid"] == pod["metadata"]["uid"]
    sharing.check_books()
