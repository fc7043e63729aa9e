"""Links lead somewhere, names are those of the code, kustomizations build."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.core import TyperOption

from deviceplugin import slices
from deviceplugin.metrics import Metrics
from deviceplugin.usage import metrics as measured
from extender.metrics import TABLE
from protos.contract import gpu_class, names
from tests.unit.docs import options
from tests.unit.docs.pages import EVERY, PAGES, ROOT, anchors, blocks, ids, links, page, table

NAMES = {value for value in vars(names).values() if isinstance(value, str)} | {gpu_class.API_VERSION}
OF_TESTS = {"GANGSHARE_CACHE"}
"""Read by the tests alone."""


@pytest.mark.parametrize("of", EVERY, ids=ids)
def test_a_link_leads_somewhere(of: Path) -> None:
    for target in links(of):
        path, _, fragment = target.partition("#")
        there = (of.parent / path).resolve() if path else of
        assert there.exists(), target
        assert not fragment or fragment in anchors(there), target


@pytest.mark.parametrize("of", PAGES, ids=ids)
def test_an_annotation_or_resource_is_one_of_ours(of: Path) -> None:
    text = re.sub(r"\S+ is not known to Gangshare", "", of.read_text())  # examples of misspelt keys
    named = set(re.findall(r"\bgangshare\.io/[a-z0-9-]+[a-z0-9]|\baliyun\.com/[a-z-]+|\bALIYUN_COM_[A-Z_]+[A-Z]", text))
    assert named - NAMES == set()


@pytest.mark.parametrize("of", PAGES, ids=ids)
def test_a_variable_is_read_or_set_by_us(of: Path) -> None:
    known = {name for command in options.commands().values() for o in options.of(command) for name in variables(o)}
    named = set(re.findall(r"\bGANGSHARE_[A-Z_]+[A-Z]", of.read_text()))
    assert named - known - NAMES - OF_TESTS == set()


def variables(option: TyperOption) -> list[str]:
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())


@pytest.mark.parametrize("of", PAGES, ids=ids)
def test_a_metric_is_one_of_ours(of: Path) -> None:
    known = {sample(spec.name, spec.kind) for spec in (*TABLE, *measured.TABLE)} | set(collected(Metrics().registry))
    named = set(re.findall(r"\bgangshare_[a-z_]+[a-z]", of.read_text()))
    assert named - known == set()


def collected(registry: CollectorRegistry) -> dict[str, tuple[str, str]]:
    """Type and meaning of the metrics by the name of their samples."""
    return {sample(found.name, found.type): (found.type, found.documentation) for found in registry.collect()}


def sample(name: str, kind: str) -> str:
    return f"{name.removesuffix('_total')}_total" if kind == "counter" else name


def test_the_table_of_the_plugins_metrics_is_the_real_one() -> None:
    told = {cells[0].strip("`"): cells[1:] for cells in table(page("docs/operations.md"), "metric", "type", "meaning")}
    assert told == collected(Metrics().registry)


def kustomizations() -> dict[str, str]:
    found = {}
    for of in PAGES:
        for block in blocks(of, "yaml"):
            if block.text.startswith("# kustomization.yaml\n"):
                found[str(of.relative_to(ROOT))] = block.text
    return found


def built(folder: Path, text: str) -> list[dict[str, Any]]:
    """The objects that a kustomization beside a clone of the repository makes."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing: https://kubernetes.io/docs/tasks/tools")
    shutil.copytree(ROOT / "manifests", folder / "gangshare/manifests")
    (folder / "kustomization.yaml").write_text(text)
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_the_kustomization_of_the_manifests_readme_takes_the_images_from_where_it_says(tmp_path: Path) -> None:
    objects = built(tmp_path, kustomizations()["manifests/README.md"])
    text = yaml.safe_dump_all(objects)
    assert set(re.findall(r"image: (\S+)", text)) == {
        "registry.example.com/gangshare/extender:0.1.0",
        "registry.example.com/gangshare/plugin:0.1.0",
        "registry.k8s.io/kube-scheduler:v1.34.4",
    }


def test_the_kustomization_for_time_slicing_gives_the_plugin_a_file_that_it_reads(tmp_path: Path) -> None:
    objects = built(tmp_path, kustomizations()["docs/nvidia-plugin.md"])
    (config,) = [found for found in objects if found["metadata"]["name"].startswith("gangshare-time-slicing")]
    (file, text), *_ = config["data"].items()
    assert slices.parse(text.encode(), names.Resources(), names.DEFAULT_SLICES_PER_GPU).replicas == {names.WHOLE_GPU: 4}
    (plugin,) = [found for found in objects if found["kind"] == "DaemonSet"]
    spec = plugin["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {"name": "CONFIG_FILE", "value": f"/etc/gangshare/{file}"} in container["env"]
    assert {"name": "time-slicing", "configMap": {"name": config["metadata"]["name"]}} in spec["volumes"]


def test_nothing_else_in_a_yaml_block_is_left_unread() -> None:
    for of in PAGES:
        for block in blocks(of, "yaml"):
            assert all(isinstance(found, dict) for found in yaml.safe_load_all(block.text)), ids(of)
