import json
from typing import Any

import pytest
import yaml

from extender.cli import scheduler_config as config
from extender.cli.errors import CommandError
from extender.sim.scheduler import config as strict
from protos.contract import names
from tests.unit.cli.run import gangshare

VERBS = ["filter", "preempt"]
YAML_LAYOUTS: tuple[config.Layout, ...] = ("own", "shared", "gpushare")


def made(layout: config.Layout, **said: Any) -> dict[str, Any]:
    return config.configuration(layout, config.Options(**said) if said else config.defaults(layout))


def test_own_asks_quickly_and_lets_bind_alone_be_held() -> None:
    decide, bind = made("own")["extenders"]
    assert [decide[f"{verb}Verb"] for verb in VERBS] == VERBS
    assert decide["httpTimeout"] == "5s"
    assert "bindVerb" not in decide
    assert (bind["bindVerb"], bind["httpTimeout"]) == ("bind", "120s")
    assert "filterVerb" not in bind


def test_own_shows_us_every_pod() -> None:
    assert all("managedResources" not in entry for entry in made("own")["extenders"])


def test_own_leaves_what_we_serve_out_of_the_in_tree_fit() -> None:
    served = names.Resources(mem="gangshare.io/gpu-mem", whole="example.com/gpu", shared="example.com/gpu.shared")
    profile = strict.parse(config.render("own", config.Options(resources=served))).profiles[0]
    assert all(profile.fit_args.ignores(name) for name in served.managed)
    assert not profile.fit_args.ignores("nvidia.com/gpu")
    assert not profile.preempts


def test_own_leaves_unknown_resources_of_our_domain_in_the_in_tree_fit() -> None:
    profile = strict.parse(config.render("own", config.Options())).profiles[0]
    assert not profile.fit_args.ignores("gangshare.io/gpu-memory")


def test_own_elects_by_a_lease_of_its_own() -> None:
    own = strict.parse(config.render("own", config.Options()))
    assert own.leader_election.resource_name == "gangshare-scheduler"
    assert own.profiles[0].scheduler_name == "gangshare"
    assert strict.parse(config.render("shared", config.Options())).leader_election.resource_name == "kube-scheduler"


def test_own_serves_the_names_of_other_schedulers_with_the_same_profile(capsys: pytest.CaptureFixture[str]) -> None:
    printed = gangshare(capsys, "scheduler-config", "--profile", "gangshare", "--profile", "volcano").out
    assert printed.startswith("# Pods choose this scheduler by schedulerName: gangshare or volcano.")
    ours, theirs = strict.parse(printed).profiles
    assert (ours.scheduler_name, theirs.scheduler_name) == ("gangshare", "volcano")
    assert theirs.fit_args == ours.fit_args
    assert not theirs.preempts


def test_shared_manages_every_served_resource_in_one_entry() -> None:
    entry, _ = made("shared")["extenders"]
    assert {managed["name"] for managed in entry["managedResources"]} == set(names.Resources().managed)
    assert all(managed["ignoredByScheduler"] for managed in entry["managedResources"])
    assert {"filterVerb", "preemptVerb", "bindVerb"} <= set(entry)


def test_shared_shows_us_other_pods_too_and_goes_on_without_an_answer() -> None:
    _, entry = made("shared")["extenders"]
    assert {key for key in entry if key.endswith("Verb")} == {"filterVerb"}
    assert entry["filterVerb"] == "observe"
    assert "managedResources" not in entry
    assert entry["ignorable"]
    assert entry["nodeCacheCapable"]
    assert entry["httpTimeout"] == "2s"


def test_no_entry_that_binds_may_be_passed_over() -> None:
    for layout in YAML_LAYOUTS:
        assert not any(entry.get("ignorable") for entry in made(layout)["extenders"] if "bindVerb" in entry)


def test_gpushare_has_its_resource_paths_and_verbs() -> None:
    (entry,) = made("gpushare")["extenders"]
    assert entry["urlPrefix"] == "http://127.0.0.1:12345/gpushare-scheduler"
    assert [managed["name"] for managed in entry["managedResources"]] == ["aliyun.com/gpu-mem"]
    assert {key for key in entry if key.endswith("Verb")} == {"filterVerb", "bindVerb"}


def test_policy_counts_time_in_nanoseconds_and_is_said_to_be_untested(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "scheduler-config", "--layout", "policy")
    policy = json.loads(ran.out)
    assert (policy["kind"], policy["apiVersion"]) == ("Policy", "v1")
    assert policy["extenders"][0]["httpTimeout"] == 30_000_000_000
    assert "UNTESTED" in ran.err


@pytest.mark.parametrize("layout", YAML_LAYOUTS)
def test_every_layout_is_strictly_a_scheduler_configuration(layout: config.Layout) -> None:
    read = strict.parse(config.render(layout, config.defaults(layout)))
    assert read.percentage_of_nodes_to_score == (config.CHECKED_PERCENT if layout == "own" else None)
    assert read.client_connection.qps > 50


def test_what_is_said_on_the_command_line_is_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    said = ("--extender-url", "http://10.0.0.1:99/", "--resource-whole", "a.com/gpu", "--kubeconfig", "/k")
    content = yaml.safe_load(gangshare(capsys, "scheduler-config", *said).out)
    assert {entry["urlPrefix"] for entry in content["extenders"]} == {"http://10.0.0.1:99/scheduler"}
    assert content["clientConnection"]["kubeconfig"] == "/k"
    assert "a.com/gpu" in content["profiles"][0]["pluginConfig"][0]["args"]["ignoredResources"]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (("--extender-url", "127.0.0.1:12345"), "'127.0.0.1:12345'"),
        (("--resource-mem", "memory"), "'memory'"),
        (("--resource-mem", "kubernetes.io/mem"), "'kubernetes.io/mem'"),
        (("--resource-mem", "nvidia.com/gpu"), "nvidia.com/gpu"),
        (("--profile", "Volcano!"), "'Volcano!'"),
        (("--profile", "volcano", "--profile", "volcano"), "volcano, volcano"),
    ],
)
def test_a_bad_value_is_named(said: tuple[str, str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "scheduler-config", *said)
    assert ran.code == 1
    assert ran.out == ""
    assert named in ran.err
    assert "expected" in ran.err


def test_an_unknown_layout_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "scheduler-config", "--layout", "mine")
    assert ran.code == 2
    assert "mine" in ran.err


def test_options_refuse_what_no_cluster_could_use() -> None:
    with pytest.raises(CommandError, match="ftp://x"):
        config.Options(extender_url="ftp://x")


@pytest.mark.parametrize("layout", YAML_LAYOUTS)
def test_with_tls_every_entry_shows_the_schedulers_certificate(
    layout: config.Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = "/etc/kubernetes/gangshare"
    printed = gangshare(capsys, "scheduler-config", "--layout", layout, "--tls-files", f"{folder}/").out
    for entry in yaml.safe_load(printed)["extenders"]:
        assert entry["urlPrefix"].startswith("https://127.0.0.1:")
        assert entry["enableHTTPS"] is True
        assert entry["tlsConfig"] == {
            "certFile": f"{folder}/tls.crt",
            "keyFile": f"{folder}/tls.key",
            "caFile": f"{folder}/ca.crt",
        }
    assert all("tlsConfig" not in entry for entry in made(layout)["extenders"])


def test_a_policy_has_no_tls() -> None:
    with pytest.raises(CommandError, match="TLS files are '/pki': expected none"):
        made("policy", tls_files="/pki")
