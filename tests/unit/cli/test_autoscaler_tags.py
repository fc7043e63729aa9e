"""What autoscalers are told of new nodes, from a profile and from a node of the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import StatusPort
from tests.unit.cli.run import gangshare

A100 = {"gangshare.io/gpu-mem": "632", "gangshare.io/gpu-slice": "800", "nvidia.com/gpu": "8"}
"""What the plugin offers on eight A100 of 80 GB: 79 GiB each."""


def a_node(**fields: Any) -> bytes:
    labels = {
        "nvidia.com/gpu.present": "true",
        "kubernetes.io/hostname": "gpu-1",
        "nvidia.com/gpu.product": "A100_SXM4",
    }
    taints = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "startup-taint.cluster-autoscaler.kubernetes.io/gangshare", "effect": "NoSchedule"},
    ]
    node = {
        "metadata": {"name": "gpu-1", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu.shared": "0", **A100}},
    }
    return json.dumps(node | fields).encode()


@pytest.fixture
def kubeconfig(status_port: StatusPort, tmp_path: Path) -> str:
    status_port.answers["/api/v1/nodes/gpu-1"] = a_node()
    return f"--kubeconfig={status_port.write_kubeconfig(tmp_path / 'config')}"


def test_aws_gets_tags_of_a_node_without_what_only_this_node_has(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template"
    assert gangshare(capsys, "autoscaler-tags", "gpu-1", kubeconfig).out.splitlines() == [
        f"{prefix}/resources/gangshare.io/gpu-mem=632",
        f"{prefix}/resources/gangshare.io/gpu-slice=800",
        f"{prefix}/resources/nvidia.com/gpu=8",
        f"{prefix}/label/nvidia.com/gpu.present=true",
        f"{prefix}/label/nvidia.com/gpu.product=A100_SXM4",
        f"{prefix}/taint/nvidia.com/gpu=present:NoSchedule",
    ]


def test_azure_gets_the_same_without_slashes(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = "k8s.io_cluster-autoscaler_node-template"
    more = ("--label", "team_a/pool=gold")
    assert gangshare(capsys, "autoscaler-tags", "gpu-1", "--for=azure", *more, kubeconfig).out.splitlines() == [
        f"{prefix}_resources_gangshare.io_gpu-mem=632",
        f"{prefix}_resources_gangshare.io_gpu-slice=800",
        f"{prefix}_resources_nvidia.com_gpu=8",
        f"{prefix}_label_nvidia.com_gpu.present=true",
        f"{prefix}_label_nvidia.com_gpu.product=A100_SXM4",
        f"{prefix}_label_team~2a_pool=gold",
        f"{prefix}_taint_nvidia.com_gpu=present:NoSchedule",
    ]


def test_gce_gets_one_variable_of_kube_env(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "autoscaler-tags", "--profile=t4x1", "--for=gce", "--taint=gpu=yes:NoSchedule")
    assert ran.out == (
        "AUTOSCALER_ENV_VARS: node_labels=nvidia.com/gpu.present=true;node_taints=gpu=yes:NoSchedule;"
        "extended_resources=gangshare.io/gpu-mem=14,gangshare.io/gpu-slice=100,nvidia.com/gpu=1\n"
    )


def test_karpenter_gets_an_overlay_of_what_the_plugin_will_offer(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--for=karpenter", "--pool=gpu", "--instance-type=p4de.24xlarge")
    made = yaml.safe_load(gangshare(capsys, "autoscaler-tags", "--profile=dgx-a100-80g", *chosen).out)
    assert (made["apiVersion"], made["kind"]) == ("karpenter.sh/v1alpha1", "NodeOverlay")
    assert made["spec"]["capacity"] == A100
    assert [(each["key"], each["values"]) for each in made["spec"]["requirements"]] == [
        ("karpenter.sh/nodepool", ["gpu"]),
        ("node.kubernetes.io/instance-type", ["p4de.24xlarge"]),
    ]


def test_the_units_of_a_profile_are_those_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "autoscaler-tags", "--profile=t4x1", "--memory-unit=256MiB", "--slices-per-gpu=10")
    assert "gangshare.io/gpu-mem=58\n" in ran.out
    assert "gangshare.io/gpu-slice=10\n" in ran.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "expected a NODE of the cluster, or --profile"),
        (("gpu-1", "--profile=t4x1"), "expected a NODE of the cluster, or --profile"),
        (("--profile=none",), "no profile 'none': expected a YAML file or one of"),
        (("--profile=t4x1", "--memory-unit=ten"), "'ten'"),
        (("--profile=t4x1", "--for=karpenter"), "a NodeOverlay needs --pool or --instance-type"),
        (("--profile=t4x1", "--label=x"), "--label is 'x': expected KEY=VALUE"),
        (("--profile=t4x1", "--taint=x=y"), "--taint is 'x=y': expected KEY=VALUE:EFFECT"),
    ],
)
def test_what_cannot_be_made_is_said(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "autoscaler-tags", *words)
    assert ran.code == 1
    assert told in ran.err


def test_a_node_without_gpus_is_no_template(
    status_port: StatusPort, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status_port.answers["/api/v1/nodes/gpu-1"] = a_node(status={"allocatable": {"cpu": "64"}})
    ran = gangshare(capsys, "autoscaler-tags", "gpu-1", kubeconfig)
    assert ran.err == "error: node gpu-1 offers no GPU: expected a node on which the plugin runs\n"


def test_a_name_that_no_object_may_have_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--for=karpenter", "--instance-type=Standard_ND96asr_v4")
    made = yaml.safe_load(gangshare(capsys, "autoscaler-tags", "--profile=dgx-a100-80g", *chosen).out)
    assert made["metadata"]["name"] == "gangshare-standard-nd96asr-v4"
