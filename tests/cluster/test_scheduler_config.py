"""The configurations that we print, read by the real kube-scheduler: it builds its profiles, writes them and ends."""

import subprocess
from pathlib import Path

import pytest
import yaml

from extender.cli import scheduler_config as config
from tests.cluster import assets
from tests.cluster.pki import Authority


def started(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What kube-scheduler says to the configuration."""
    access = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "none", "context": {"cluster": "none"}}],
        "current-context": "none",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(access))
    (folder / "config").write_text(text)
    program = str(assets.provide().program("kube-scheduler"))
    command = [program, "--config", "config", "--write-config-to", "completed", "--secure-port", "0"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.core
@pytest.mark.parametrize("layout", ["own", "shared", "gpushare"])
def test_kube_scheduler_takes_every_layout(layout: config.Layout, tmp_path: Path) -> None:
    ran = started(tmp_path, config.render(layout, config.Options(kubeconfig="kubeconfig")))
    assert ran.returncode == 0, ran.stderr
    completed = yaml.safe_load((tmp_path / "completed").read_text())
    assert len(completed["extenders"]) == {"own": 2, "shared": 2, "gpushare": 1}[layout]


@pytest.mark.parametrize("layout", ["own", "shared", "gpushare"])
def test_kube_scheduler_takes_a_certificate_for_us(layout: config.Layout, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    pair = authority.issue("tls", user="kube-scheduler")
    options = config.Options(kubeconfig="kubeconfig", tls_files=str(tmp_path / "pki"))
    ran = started(tmp_path, config.render(layout, options))
    assert ran.returncode == 0, ran.stderr
    for entry in yaml.safe_load((tmp_path / "completed").read_text())["extenders"]:
        assert entry["enableHTTPS"] is True
        assert entry["tlsConfig"]["certFile"] == str(pair.certificate)
        assert entry["tlsConfig"]["caFile"] == str(authority.ca.certificate)


def test_kube_scheduler_takes_the_names_of_others_as_well(tmp_path: Path) -> None:
    named = ("gangshare", "volcano", "kube-batch")
    ran = started(tmp_path, config.render("own", config.Options(kubeconfig="kubeconfig", profiles=named)))
    assert ran.returncode == 0, ran.stderr
    completed = yaml.safe_load((tmp_path / "completed").read_text())
    assert tuple(profile["schedulerName"] for profile in completed["profiles"]) == named


def test_kube_scheduler_would_have_refused_two_binders(tmp_path: Path) -> None:
    content = config.configuration("own", config.Options(kubeconfig="kubeconfig"))
    content["extenders"][0]["bindVerb"] = "bind"
    ran = started(tmp_path, yaml.safe_dump(content))
    assert ran.returncode != 0
    assert "bind" in ran.stderr
