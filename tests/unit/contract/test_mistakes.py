"""Keys of pods that we do not read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from protos.contract import mistakes, names
from protos.contract.objects import Pod
from tests.builders import a_container, a_pod

SLICES = 100


def first(pod: Pod, resources: names.Resources | None = None) -> str:
    found = mistakes.first(pod, resources or names.Resources(), SLICES)
    return found.sentence if found is not None else ""


def asking(limits: Mapping[str, str]) -> Pod:
    """A pod whose container has these limits."""
    return a_pod(containers=[{**a_container("main"), "resources": {"limits": dict(limits)}}])


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("gangshare.io/gpu-modle", "did you mean gangshare.io/gpu-model?"),
        ("gangshare.io/gpu_model", "did you mean gangshare.io/gpu-model?"),
        ("gangshare.io/min-available", "did you mean gangshare.io/min-member?"),
        ("gangshare.io/group-name", "did you mean gangshare.io/group?"),
        ("gangshare.com/gpu-model", "write gangshare.io/gpu-model"),
        ("gangshrae.io/gpu-mdl", "did you mean gangshare.io/gpu-model?"),
        ("gansghare.io/gpu-model", "write gangshare.io/gpu-model"),
        ("Gangshare.IO/gpu-model", "write gangshare.io/gpu-model"),
        ("gang.share.io/gpu-model", "write gangshare.io/gpu-model"),
        ("io.gangshare/gpu-model", "write gangshare.io/gpu-model"),
        ("scheduling.gangshare.io/group", "write gangshare.io/group"),
        ("gangshare.io.gpu-model", "write gangshare.io/gpu-model"),
        ("gangshare.io/GPU-Modle", "did you mean gangshare.io/gpu-model?"),
        ("gangshare.io/gpu-mem", "write it as limit gangshare.io/gpu-mem of a container"),
        ("gangshare.io/zzz", "no known key is like it"),
        ("gangshare.io/", "no known key is like it"),
        ("gangshare.io/" + "g" * 5000, "no known key is like it"),
    ],
)
def test_an_unknown_annotation_is_answered_with_what_to_write(key: str, advice: str) -> None:
    sentence = first(a_pod(mem=1, annotations={key: "1"}))
    assert sentence == f"annotation {key[:63]} is not known to Gangshare: {advice}"


def test_an_annotation_as_label_is_answered_with_its_place() -> None:
    expected = "label gangshare.io/gpu-model is not known to Gangshare: write it as annotation gangshare.io/gpu-model"
    assert first(a_pod(mem=1, labels={names.GPU_MODEL: "A100"})) == expected


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("gangshare.io/gpu-memory", "did you mean gangshare.io/gpu-mem?"),
        ("gangshare.io/gpus", "did you mean nvidia.com/gpu?"),
        ("gangshare.io/gpu-count", "write it as annotation gangshare.io/gpu-count"),
        ("angshare.io/gpu-mem", "write gangshare.io/gpu-mem"),
        ("requests.gangshare.io/gpu-mem", "write gangshare.io/gpu-mem"),
    ],
)
def test_an_unknown_resource_is_answered_with_what_to_write(name: str, advice: str) -> None:
    assert first(asking({name: "1"})).startswith(f"resource {name} is not known to Gangshare: {advice}")


@pytest.mark.parametrize(
    ("annotations", "labels", "said"),
    [
        (["gangshare.io/cordon-gpus"], [], "the node's annotation gangshare.io/cordon-gpus is not known to Gangshare"),
        (["gangshare.com/cordoned-gpus"], [], "the node's annotation gangshare.com/cordoned-gpus is not known"),
        ([], ["gangshare.io/cordoned-gpus"], "the node's label gangshare.io/cordoned-gpus is not known to Gangshare"),
        (["gangshare.io/gpus", "gangshare.io/cordoned-gpus"], [], ""),
        (["sim.gangshare.io/profile", "gangway.io/x"], ["example.com/cordoned-gpus"], ""),
    ],
)
def test_a_key_of_a_node_is_answered_with_that_of_cordons(annotations: list[str], labels: list[str], said: str) -> None:
    found = mistakes.of_node(dict.fromkeys(annotations, "0"), dict.fromkeys(labels, "0"))
    sentence = found.sentence if found is not None else ""
    assert sentence.startswith(said)
    assert sentence.endswith(": did you mean annotation gangshare.io/cordoned-gpus?" if said else "")


def test_keys_that_we_read_on_nodes_pass() -> None:
    labels = {names.MPS: "true", names.PLUGIN_CONFIG: "dense"}
    assert mistakes.of_node({names.GPUS: "", names.CORDONED_GPUS: ""}, labels) is None
    assert mistakes.of_node({names.MPS: "true"}, {}) is not None


def test_a_key_of_a_node_that_is_like_none_is_told_without_a_guess() -> None:
    found = mistakes.of_node({}, {f"gangshare.io/{'x' * 9000}": ""})
    assert found is not None
    assert found.sentence.endswith("is not known to Gangshare: no key of nodes is like it")
    assert len(found.sentence) < 200


@pytest.mark.parametrize("key", sorted(mistakes.ANNOTATIONS))
def test_every_known_annotation_passes(key: str) -> None:
    assert not first(a_pod(mem=1, annotations={key: "1"}))


@pytest.mark.parametrize("key", sorted(mistakes.GROUP_KEYS))
def test_keys_of_groups_pass_as_labels_too(key: str) -> None:
    assert not first(a_pod(mem=1, labels={key: "1"}))


def test_keys_of_other_domains_are_nobodys_mistake() -> None:
    others = {"gangway.io/x": "1", "sim.gangshare.io/run-seconds": "1", "example.com/gpu-model": "1", "gpu-model": "x"}
    assert not first(a_pod(annotations=others, labels=others))


@pytest.mark.parametrize("key", ["gpu-model", "gpu_model", "gpuModel", "nvidia.com/gpu-model", "run.ai/gpu-model"])
def test_a_key_of_ours_without_our_domain_counts_where_the_pod_asks_for_gpus(key: str) -> None:
    expected = f"{key} is not known to Gangshare: write annotation gangshare.io/gpu-model"
    assert first(a_pod(mem=1, annotations={key: "x"})) == expected
    assert first(a_pod(mem=1, labels={key: "x"})) == expected
    assert not first(a_pod(annotations={key: "x"}))


@pytest.mark.parametrize("key", ["group", "queue", "role", "link", "placement", "checkpoint", "acme.com/gpu-model"])
def test_words_and_domains_of_others_are_left_to_them(key: str) -> None:
    assert not first(a_pod(mem=1, annotations={key: "x"}, labels={key: "x"}))


@pytest.mark.parametrize("key", ["gpu-mem", "gpu_mem", "nvidia.com/gpu-mem", "volcano.sh/gpu-slice"])
def test_an_amount_is_told_its_domain_and_place(key: str) -> None:
    amount = names.GPU_SLICE if "slice" in key else names.GPU_MEM
    expected = f"{key} is not known to Gangshare: write it as limit {amount} of a container"
    assert first(a_pod(annotations={key: "10"})) == expected
    assert first(a_pod(mem=1, annotations={key: "10"})) == expected
    if "/" in key:
        assert first(asking({key: "10"})) == expected


@pytest.mark.parametrize("key", [names.GPU_MODEL, names.GPU_COUNT, names.GPU_CLASS, names.LINK, names.MIN_GPU_MEMORY])
def test_a_pod_that_selects_gpus_must_ask_for_some(key: str) -> None:
    found = mistakes.without_gpus(a_pod(annotations={key: "x"}), names.Resources())
    assert found is not None
    assert str(found) == (
        f"annotation {key} selects GPUs, and no container asks for any: "
        "write limit gangshare.io/gpu-mem, gangshare.io/gpu-slice or nvidia.com/gpu of a container, or leave it out"
    )
    for right in (a_pod(mem=1, annotations={key: "x"}), asking({names.WHOLE_GPU: "0"}), a_pod()):
        assert mistakes.without_gpus(right, names.Resources()) is None


def test_a_thousand_keys_are_not_compared_with_our_domain() -> None:
    many = {f"gangsh{number}.io/x": "" for number in range(1000)}
    assert not first(a_pod(annotations=many))
    assert first(a_pod(annotations={**many, "gangshare.io/x": ""})).startswith("annotation gangshare.io/x")


@pytest.mark.parametrize(
    ("key", "value", "product", "instead"),
    [
        ("gpu-fraction", "0.5", "KAI", ": write limit gangshare.io/gpu-slice: 50"),
        ("gpu-fraction", ".29", "KAI", ": write limit gangshare.io/gpu-slice: 29"),
        ("gpu-fraction", "much", "KAI", ""),
        ("run.ai/gpu-fraction", "0.5", "KAI", ": write limit gangshare.io/gpu-slice: 50"),
        ("gpu-memory", "3000", "KAI", ": write limit gangshare.io/gpu-mem: 3"),
        ("hami.io/gpu-scheduler-policy", "binpack", "HAMi", ': write annotation gangshare.io/placement: "pack"'),
        ("nvidia.com/use-gputype", "A100", "HAMi", ': write annotation gangshare.io/gpu-model: "A100"'),
        ("nvidia.com/nouse-gputype", "T4", "HAMi", ': write annotation gangshare.io/gpu-model: "!T4"'),
    ],
)
def test_annotations_of_other_products_are_answered_with_ours(key: str, value: str, product: str, instead: str) -> None:
    expected = f"annotation {key} is of {product}, and Gangshare does not read it{instead}"
    assert first(a_pod(annotations={key: value})) == expected


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("nvidia.com/gpumem", "3000", "limit gangshare.io/gpu-mem: 3"),
        ("nvidia.com/gpucores", "30", "limit gangshare.io/gpu-slice: 30"),
        ("volcano.sh/vgpu-number", "2", 'annotation gangshare.io/gpu-count: "2"'),
        ("tencent.com/vcuda-memory", "8", "limit gangshare.io/gpu-mem: 2"),
        ("aliyun.com/gpu-mem", "3", "limit gangshare.io/gpu-mem: 3"),
        ("volcano.sh/gpu-number", "2", "limit nvidia.com/gpu: 2"),
        ("koordinator.sh/gpu-core", "50", "limit gangshare.io/gpu-slice: 50"),
        ("koordinator.sh/gpu-memory", "8Gi", "limit gangshare.io/gpu-mem: 8"),
    ],
)
def test_resources_of_other_products_are_answered_with_ours(name: str, value: str, instead: str) -> None:
    assert first(asking({name: value})).endswith(f"does not read it: write {instead}")


@pytest.mark.parametrize(
    ("pod", "instead"),
    [
        (asking({"nvidia.com/gpumem": "3000", "nvidia.com/gpu": "1"}), "gpu-mem: 3, and no limit nvidia.com/gpu"),
        (
            asking({"nvidia.com/gpumem": "3000", "nvidia.com/gpu": "2"}),
            'gpu-mem: 6 and annotation gangshare.io/gpu-count: "2", and no limit nvidia.com/gpu',
        ),
        (
            asking({"volcano.sh/vgpu-cores": "30", "volcano.sh/vgpu-number": "2"}),
            'gpu-slice: 60 and annotation gangshare.io/gpu-count: "2"',
        ),
        (
            a_pod(annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "4"}),
            'gpu-slice: 200 and annotation gangshare.io/gpu-count: "4"',
        ),
        (asking({"nvidia.com/gpumem": "3000", "nvidia.com/gpu": "9" * 99}), "gpu-mem: 3, and no limit nvidia.com/gpu"),
        (asking({"koordinator.sh/gpu-core": "50", "nvidia.com/gpu": "2"}), "gpu-slice: 50"),
    ],
)
def test_amounts_of_one_gpu_are_answered_with_those_of_all_gpus(pod: Pod, instead: str) -> None:
    assert first(pod).endswith(f"does not read it: write limit gangshare.io/{instead}")


def test_a_resource_that_the_installation_serves_is_ours() -> None:
    assert not first(asking({names.ALIYUN_MEM: "3"}), names.GPUSHARE_RESOURCES)


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        (asking({"nvidia.com/gpumem": "3000"}), "write limit aliyun.com/gpu-mem: 3"),
        (asking({"gangshare.io/gpu-memory": "3"}), "did you mean aliyun.com/gpu-mem?"),
        (asking({names.GPU_MEM: "3"}), "did you mean aliyun.com/gpu-mem?"),
        (asking({"nvidia.com/gpucores": "30"}), "write limit gangshare.io/gpu-slice: 30"),
        (a_pod(annotations={"gpu-fraction": "0.5"}), "write limit gangshare.io/gpu-slice: 50"),
        (a_pod(mem=1, annotations={names.GPU_MEM: "3"}), "did you mean aliyun.com/gpu-mem?"),
    ],
)
def test_lines_to_write_name_the_resources_of_the_installation(pod: Pod, line: str) -> None:
    assert first(pod, names.GPUSHARE_RESOURCES).endswith(f": {line}")


def test_a_group_is_told_of_the_resources_of_the_installation_too() -> None:
    (said,) = mistakes.of_group({"gangshare.io/gpu-memory": "3"}, {}, names.GPUSHARE_RESOURCES)
    assert said.endswith("did you mean aliyun.com/gpu-mem?")


def test_lines_to_write_are_in_the_units_of_the_installation() -> None:
    halves = names.Resources(unit_mib=512)
    found = mistakes.first(asking({"nvidia.com/gpumem": "3000"}), halves, 10)
    assert found is not None
    assert found.sentence.endswith("write limit gangshare.io/gpu-mem: 6")


def test_the_same_pod_always_has_the_same_reason() -> None:
    wrong = {f"gangshare.io/{name}": "1" for name in ("b", "a", "c")} | {"gpu-fraction": "1", "gpu-memory": "1"}
    backwards = dict(reversed(wrong.items()))
    assert first(a_pod(annotations=wrong)) == first(a_pod(annotations=backwards)) != ""


def test_every_name_of_our_domain_is_a_known_key_or_belongs_to_other_objects() -> None:
    elsewhere = {
        names.PLAN_GATE, names.GPUS, names.CORDONED_GPUS, names.GPU_VISIBILITY, names.METRICS_LABEL, names.UNKNOWN_KEYS,
        names.MPS, names.PLUGIN_CONFIG,
    }  # fmt: skip
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(mistakes.PREFIX)}
    assert ours == mistakes.ANNOTATIONS | elsewhere | {names.GPU_MEM, names.GPU_SLICE}


def test_annotations_of_other_products_count_as_labels_where_the_pod_asks_for_no_gpu() -> None:
    label = {"gpu-fraction": "0.5"}
    assert first(a_pod(labels=label)).startswith("label gpu-fraction is of KAI")
    assert not first(a_pod(mem=1, labels=label))
    assert first(a_pod(mem=1, labels={"nvidia.com/use-gputype": "A100"})).startswith(
        "label nvidia.com/use-gputype is of"
    )
