"""What the chart's values do beyond overlays and components, and which values helm refuses."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli import scheduler_config
from protos.contract import names
from tests.monitoring.files import RULE
from tests.unit.docs import typed
from tests.unit.manifests import chart_values
from tests.unit.manifests.conftest import CHART, ROOT, Chart, Json, Objects
from tests.unit.manifests.sameness import OF_HELM

pytestmark = pytest.mark.timeout(900)  # the first test may build helm
PROXY: Json = {"name": "login", "image": "proxy", "ports": [{"name": "login", "containerPort": 4180}]}
EVERYTHING: Json = {
    "gate": "webhook",
    "scheduler": {"operators": True},
    "visibility": {"enabled": True},
    "page": {"enabled": True, "proxy": [PROXY]},
    "dcgmExporter": {"enabled": True},
    "plugin": {"isolation": {"mode": "auto", "onMismatch": "evict"}, "deviceListStrategy": "cdi-cri"},
    "usage": {"enabled": True, "overuseEvents": True},
    "mps": {"enabled": True},
    "policies": {"void": True, "memoryUnits": True, "unknownKeys": "deny"},
    "prometheus": {part: {"enabled": True} for part in ("serviceMonitor", "podMonitor", "rules")},
    "openshift": {"enabled": True},
    "resourceQuota": {"enabled": True},
    "runtimeClass": {"create": True},
}
MONITORS = ROOT / "manifests/components/monitoring/pod-monitors.yaml"
WORKLOADS = {
    "Deployment/gangshare-scheduler",
    "Deployment/gangshare-page",
    "DaemonSet/gangshare-plugin",
    "DaemonSet/gangshare-usage",
    "DaemonSet/gangshare-mps",
}


def templates(objects: Objects) -> dict[str, Json]:
    """The pod templates, by kind and name."""
    found = {kind: objects.of(kind) for kind in ("Deployment", "DaemonSet")}
    return {f"{kind}/{name}": one["spec"]["template"] for kind, all_of in found.items() for name, one in all_of.items()}


def test_the_schema_and_the_readme_are_those_of_the_values() -> None:
    again = "make them again: python -m tests.unit.manifests.chart_values"
    assert chart_values.SCHEMA.read_text() == chart_values.schema(), again
    assert chart_values.README.read_text() == chart_values.readme(), again


def test_helm_finds_no_fault_in_the_chart(chart: Chart) -> None:
    done = chart.run("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicaCount": 3}, "'replicaCount' not allowed"),
        ({"plugin": {"kubeletRootDir": "/k"}}, "'kubeletRootDir' not allowed"),
        ({"extender": {"args": {"min-runtme": 60}}}, "'min-runtme' not allowed"),
        ({"plugin": {"args": {"isolation": "driver"}}}, "'isolation' not allowed"),
        ({"layout": "mine"}, "at '/layout': value must be one of 'own'"),
        ({"scheduler": {"leaderElection": {"renewDeadline": "1m"}}}, "renewDeadline"),
        ({"layout": "shared", "visibility": {"enabled": True}}, "layout is shared: visibility"),
        ({"layout": "standalone", "gate": "policy"}, "expected gate: none"),
        ({"page": {"enabled": True}}, "visibility.enabled is false: expected true"),
        ({"visibility": {"enabled": True}, "page": {"enabled": True}}, "expected your login proxy"),
        ({"plugin": {"isolation": {"onMismatch": "evict"}}}, "expected driver or auto"),
    ],
)
def test_a_mistake_is_named(chart: Chart, values: Json, named: str) -> None:
    assert named in chart.refusal(values)


def test_everything_together_in_another_namespace_says_nothing_of_the_usual_one(chart: Chart) -> None:
    done = chart.template(EVERYTHING, namespace="gpus")
    assert done.returncode == 0, done.stderr
    assert names.NAMESPACE not in done.stdout
    objects = chart.objects(EVERYTHING, namespace="gpus")
    assert set(templates(objects)) == WORKLOADS
    placed = {one["metadata"].get("namespace") for one in objects.all}
    assert placed == {None, "gpus", "kube-system"}
    exempt = objects.of("ValidatingAdmissionPolicyBinding")["gangshare-visibility"]["spec"]["matchResources"]
    assert exempt["namespaceSelector"]["matchExpressions"][1]["values"] == ["gpus"]


def test_every_object_says_that_it_is_of_the_release(chart: Chart) -> None:
    objects = chart.objects(EVERYTHING | {"commonLabels": {"team": "gpu"}, "commonAnnotations": {"note": "n"}})
    for one in objects.all:
        labels = one["metadata"]["labels"]
        assert {key for key in OF_HELM if key.startswith("app.kubernetes.io/")} <= set(labels), one["kind"]
        assert (labels["team"], one["metadata"]["annotations"]["note"]) == ("gpu", "n")


def test_accounts_of_ones_own_are_named_everywhere(chart: Chart) -> None:
    mine: Json = {
        "scheduler": {"serviceAccount": {"create": False, "name": "sched"}},
        "plugin": {"serviceAccount": {"name": "plug", "annotations": {"a": "b"}}},
    }
    objects = chart.objects(
        EVERYTHING | {"scheduler": mine["scheduler"], "plugin": EVERYTHING["plugin"] | mine["plugin"]}
    )
    assert set(objects.of("ServiceAccount")) == {"plug", "gangshare-usage", "gangshare-mps", "gangshare-page"}
    assert objects.of("ServiceAccount")["plug"]["metadata"]["annotations"] == {"a": "b"}
    text = yaml.safe_dump_all(objects.all, width=10_000)
    assert set(re.findall(r"system:serviceaccount:gangshare-system:([a-z-]+)", text)) == {
        "sched", "plug", "gangshare-usage", "gangshare-mps",
    }  # fmt: skip
    bindings = [*objects.of("RoleBinding").values(), *objects.of("ClusterRoleBinding").values()]
    bound = {subject["name"] for one in bindings for subject in one["subjects"]}
    flows = {
        subject["serviceAccount"]["name"]
        for flow in objects.of("FlowSchema").values()
        for rule in flow["spec"]["rules"]
        for subject in rule["subjects"]
    }
    assert bound == {"sched", "plug", "gangshare-usage"}
    assert flows == {"sched", "plug"}
    accounts = {template["spec"]["serviceAccountName"] for template in templates(objects).values()}
    assert accounts == {"sched", "plug", "gangshare-usage", "gangshare-mps", "gangshare-page"}


def test_images_come_from_the_registry_with_its_secrets(chart: Chart) -> None:
    objects = chart.objects(
        EVERYTHING
        | {
            "global": {"imageRegistry": "registry.example.com", "imagePullSecrets": ["one"]},
            "imagePullSecrets": [{"name": "two"}],
            "extender": {"image": {"tag": "7", "pullPolicy": "Always"}},
        },
        version="v1.35.2-gke.100",
    )
    found: dict[str, Any] = {}
    for template in templates(objects).values():
        assert template["spec"]["imagePullSecrets"] == [{"name": "two"}, {"name": "one"}]
        for container in [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]:
            found[container["name"]] = container["image"], container.get("imagePullPolicy")
    plugin = "registry.example.com/gangshare/plugin:0.1.0"
    assert found == {
        **dict.fromkeys(("extender", "page"), ("registry.example.com/gangshare/extender:7", "Always")),
        "login": ("proxy", None),
        "kube-scheduler": ("registry.example.com/registry.k8s.io/kube-scheduler:v1.35.2", None),
        **dict.fromkeys(("plugin", "usage", "mps"), (plugin, None)),
    }


def test_the_kubelets_folder_is_where_the_values_say(chart: Chart) -> None:
    spec = templates(chart.objects({"kubeletRootDir": "/data/kubelet"}))["DaemonSet/gangshare-plugin"]["spec"]
    assert {volume["hostPath"]["path"] for volume in spec["volumes"]} == {
        "/data/kubelet/device-plugins",
        "/data/kubelet/pod-resources",
    }
    assert {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]} == {
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
    }


def test_pods_are_placed_as_the_values_say(chart: Chart) -> None:
    said: Json = {
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "mine",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
    }
    objects = chart.objects({"plugin": said | {"runtimeClassName": "-"}, "scheduler": said})
    for template in templates(objects).values():
        spec, metadata = template["spec"], template["metadata"]
        assert {key: spec[key] for key in list(said)[:4]} == {key: said[key] for key in list(said)[:4]}
        assert metadata["annotations"]["a"] == "b"
        assert metadata["labels"]["c"] == "d"
    assert "runtimeClassName" not in templates(objects)["DaemonSet/gangshare-plugin"]["spec"]


def test_names_and_units_reach_processes_policies_and_kube_scheduler(chart: Chart) -> None:
    mine = names.Resources(
        mem="example.com/mem", slice="example.com/slice", whole="example.com/gpu", shared="example.com/s"
    )
    said = {"mem": mine.mem, "slice": mine.slice, "whole": mine.whole, "shared": mine.shared}
    values: Json = {
        "resourceNames": said,
        "memoryUnit": "256MiB",
        "slicesPerGpu": 1000000,
        "usage": {"enabled": True},
        "policies": {"memoryUnits": True, "void": True},
        "scheduler": {"names": ["first", "second"]},
    }
    objects = chart.objects(values)
    words = {f"--resource-{name}={value}" for name, value in said.items()}
    words |= {"--memory-unit=256MiB", "--slices-per-gpu=1000000"}
    for template in templates(objects).values():
        container = template["spec"].get("initContainers", template["spec"]["containers"])[0]
        assert words <= set(container["args"])
    options = scheduler_config.Options(resources=mine, profiles=("first", "second"))
    made = yaml.safe_load(objects.of("ConfigMap")["gangshare-scheduler"]["data"]["scheduler.yaml"])
    assert made == scheduler_config.configuration("own", options)
    policies = objects.of("ValidatingAdmissionPolicy") | objects.of("MutatingAdmissionPolicy")
    told = {
        name: {variable["name"]: variable["expression"] for variable in one["spec"].get("variables", [])}
        for name, one in policies.items()
    }
    keys, units = told["gangshare-keys"], told["gangshare-memory-units"]
    assert (keys["schedulers"], keys["resources"]) == ("['first', 'second']", str(list(mine.all)))
    assert (keys["unitMib"], units["unitMib"], units["memory"]) == ("256", "256", f"'{mine.mem}'")
    assert all(f"'{name}'" in told["gangshare-void"]["asked"] for name in mine.all)


def test_options_of_the_extender_and_its_scheduler_agree(chart: Chart) -> None:
    values: Json = {
        "extender": {"args": {"bind-timeout": 60, "preemption": False, "drain-taints": ["a", "b=c"]}},
        "scheduler": {
            "leaderElection": {"renewDeadline": "20s", "leaseDuration": "30s"},
            "config": {"podMaxBackoffSeconds": 5},
        },
    }
    objects = chart.objects(values)
    args = objects.containers("Deployment", "gangshare-scheduler")["extender"]["args"]
    assert {"--bind-timeout=60", "--no-preemption", "--drain-taints=a,b=c", "--renew-deadline=20"} <= set(args)
    config = yaml.safe_load(objects.of("ConfigMap")["gangshare-scheduler"]["data"]["scheduler.yaml"])
    assert [entry["httpTimeout"] for entry in config["extenders"]] == ["5s", "60s"]
    assert config["leaderElection"]["leaseDuration"] == "30s"
    assert config["leaderElection"]["resourceName"] == "gangshare-scheduler"
    assert config["podMaxBackoffSeconds"] == 5


def test_an_option_replaces_the_layouts_own(chart: Chart) -> None:
    values: Json = {"layout": "shared", "extender": {"args": {"preemption": True, "max-gang-size": 100}}}
    args = chart.objects(values).containers("DaemonSet", "gangshare-extender")["extender"]["args"]
    assert [arg for arg in args if "preemption" in arg or "gang-size" in arg] == ["--max-gang-size=100", "--preemption"]


def test_a_changed_configuration_replaces_the_schedulers(chart: Chart) -> None:
    def mark(values: Json) -> str:
        annotations = templates(chart.objects(values))["Deployment/gangshare-scheduler"]["metadata"]["annotations"]
        return str(annotations["checksum/config"])

    assert mark({}) != mark({"scheduler": {"config": {"podMaxBackoffSeconds": 5}}})


def test_what_is_turned_off_is_not_there(chart: Chart) -> None:
    off: Json = {
        "rbac": {"create": False},
        "networkPolicy": {"enabled": False},
        "crds": {"install": False},
        "scheduler": {"podDisruptionBudget": {"enabled": False}},
    }
    kinds = {one["kind"] for one in chart.objects(off).all}
    assert not kinds & {
        "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "CustomResourceDefinition",
        "PodDisruptionBudget",
    }  # fmt: skip


def test_definitions_stay_when_the_release_goes(chart: Chart) -> None:
    kept = chart.objects().of("CustomResourceDefinition")
    assert {one["metadata"]["annotations"].get("helm.sh/resource-policy") for one in kept.values()} == {"keep"}
    gone = chart.objects({"crds": {"keep": False}}).of("CustomResourceDefinition")
    assert not any("annotations" in one["metadata"] for one in gone.values())


def test_monitors_name_ports_that_pods_have_and_the_alerts_are_those_of_the_component(chart: Chart) -> None:
    objects = chart.objects(EVERYTHING)
    (monitor,) = objects.of("ServiceMonitor").values()
    ports = {port["name"] for port in objects.of("Service")["gangshare-scheduler"]["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
    for name, one in objects.of("PodMonitor").items():
        (container,) = objects.containers("DaemonSet", name).values()
        named = {port["name"] for port in container["ports"]}
        assert {endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]} <= named
    (rule,) = objects.of("PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load(RULE.read_text())["spec"]


def test_nodes_with_a_label_get_the_plugin_of_its_configuration_and_all_others_the_usual_one(chart: Chart) -> None:
    mine = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}  # fmt: skip
    configs: Json = {
        "mounts": {"deviceListStrategy": "volume-mounts"},
        "slow": {"args": {"cool-down": 900}, "nodeSelector": {"rack": "7"}},
    }
    plugin: Json = {"affinity": mine, "args": {"cool-down": 60}, "configs": configs}
    objects = chart.objects({"plugin": plugin, "prometheus": {"podMonitor": {"enabled": True}}})
    sets = objects.of("DaemonSet")
    assert set(sets) == {"gangshare-plugin", "gangshare-plugin-mounts", "gangshare-plugin-slow"}
    for name, one in sets.items():
        selector = one["spec"]["selector"]["matchLabels"]
        assert selector == {"app.kubernetes.io/name": name}
        assert selector.items() <= one["spec"]["template"]["metadata"]["labels"].items()
    (monitor,), policy = objects.of("PodMonitor").values(), objects.of("NetworkPolicy")["gangshare-plugin"]
    for selector in (monitor["spec"]["selector"], policy["spec"]["podSelector"]):
        assert set(selector["matchExpressions"][0]["values"]) == set(sets)
    usual, mounts, slow = (templates(objects)[f"DaemonSet/{name}"]["spec"] for name in sorted(sets))
    (term,) = usual["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["operator"] for one in term["matchExpressions"]] == ["In", "NotIn"]
    assert term["matchExpressions"][1] == {
        "key": names.PLUGIN_CONFIG, "operator": "NotIn", "values": ["mounts", "slow"],
    }  # fmt: skip
    for spec in (usual, mounts, slow):  # it starts when that of the former label has ended
        (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart == {"topologyKey": "kubernetes.io/hostname", "labelSelector": policy["spec"]["podSelector"]}
    assert mounts["nodeSelector"] == {"nvidia.com/gpu.present": "true", names.PLUGIN_CONFIG: "mounts"}
    assert slow["nodeSelector"] == {"rack": "7", names.PLUGIN_CONFIG: "slow"}
    cooled = [next(a for a in one["containers"][0]["args"] if "cool-down" in a) for one in (usual, mounts, slow)]
    assert cooled == ["--cool-down=60", "--cool-down=60", "--cool-down=900"]
    assert "--device-list-strategy=volume-mounts" in mounts["containers"][0]["args"]


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({"a": {"args": {"cooldown": 1}}}, "'cooldown' not allowed"),
        ({"A_b": {}}, "A_b"),
        ({"a": {"x": 1}}, "'x'"),
        ({"a": {"migDynamicGpus": "0"}}, "'migDynamicGpus' not allowed"),
        (
            {"a": {"migDynamic": True, "migStrategy": "mixed", "nodeSelector": {"pool": "a"}}},
            "configs.a has a nodeSelector",
        ),
        ({"a": {"args": {"metrics-port": 9998}}}, "'metrics-port' not allowed"),
    ],
)
def test_a_mistake_in_a_configuration_is_named(chart: Chart, configs: Json, named: str) -> None:
    assert named in chart.refusal({"plugin": {"configs": configs}})


@pytest.mark.parametrize("layout", ["shared", "gpushare", "standalone"])
def test_no_alert_fires_for_ever_where_prometheus_cannot_reach_the_extender(chart: Chart, layout: str) -> None:
    rules = {"podMonitor": {"enabled": True}, "rules": {"enabled": True}}
    told = yaml.safe_dump(chart.objects({"layout": layout, "prometheus": rules}).of("PrometheusRule"))
    assert "sum(gangshare_leader) < 1" in told
    assert "absent(gangshare_leader)" not in told
    monitors = {"serviceMonitor": {"enabled": True}}
    assert "has no Service of the extender" in chart.refusal({"layout": layout, "prometheus": monitors})


@pytest.mark.parametrize(
    ("helper", "wants"),
    [
        ("gangshare-partitioner", {"migStrategy": "mixed", "migDynamic": True}),
        ("gangshare-limits", {"isolation": {"mode": "driver", "limitsHelper": True}}),
    ],
)
def test_a_helper_with_more_rights_runs_only_where_a_configuration_has_it(
    chart: Chart, helper: str, wants: Json
) -> None:
    of_some = chart.objects({"plugin": {"configs": {"a": wants, "b": {"args": {"cool-down": 9}}}}})
    spec = templates(of_some)[f"DaemonSet/{helper}"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": names.PLUGIN_CONFIG, "operator": "In", "values": ["a"]}]
    of_all = chart.objects({"plugin": wants})
    assert "affinity" not in templates(of_all)[f"DaemonSet/{helper}"]["spec"]


def test_without_a_runtime_class_mps_has_none_either(chart: Chart) -> None:
    objects = chart.objects({"mps": {"enabled": True}, "plugin": {"runtimeClassName": "-"}})
    for name in ("DaemonSet/gangshare-plugin", "DaemonSet/gangshare-mps"):
        assert "runtimeClassName" not in templates(objects)[name]["spec"]


def test_openshift_lets_each_account_do_what_its_pods_do(chart: Chart) -> None:
    objects = chart.objects(EVERYTHING)
    allowed = objects.of("SecurityContextConstraints")
    assert set(allowed) == {"gangshare-plugin", "gangshare-usage", "gangshare-mps"}
    check_constraints(objects)
    administered: Json = {
        "openshift": {"enabled": True},
        "plugin": {"migStrategy": "mixed", "migMonitor": True, "isolation": {"mode": "library"}},
    }
    check_constraints(chart.objects(administered))
    dynamic = chart.objects({"openshift": {"enabled": True}, "plugin": {"migStrategy": "mixed", "migDynamic": True}})
    assert set(dynamic.of("SecurityContextConstraints")) == {"gangshare-plugin", "gangshare-partitioner"}
    check_constraints(dynamic)
    helped: Json = {"a": {"isolation": {"mode": "auto", "limitsHelper": True}}}
    some = chart.objects({"openshift": {"enabled": True}, "plugin": {"configs": helped}})
    assert set(some.of("SecurityContextConstraints")) == {"gangshare-plugin", "gangshare-limits"}
    check_constraints(some)


def check_constraints(objects: Objects) -> None:
    """Each account may do what its pods do, and no more."""
    allowed = objects.of("SecurityContextConstraints")
    for name, one in allowed.items():
        spec = templates(objects)[f"DaemonSet/{name}"]["spec"]
        assert one["users"] == [f"system:serviceaccount:gangshare-system:{spec['serviceAccountName']}"]
        assert one["allowHostPID"] is spec.get("hostPID", False)
        context = spec["containers"][0]["securityContext"]
        privileged, added = context.get("privileged", False), context.get("capabilities", {}).get("add", [])
        assert one["allowPrivilegedContainer"] is privileged
        assert one["allowedCapabilities"] == added
        assert one["allowPrivilegeEscalation"] is (privileged or "SYS_ADMIN" in added)


def test_the_monitors_label_metrics_as_dashboards_and_alerts_need_it(chart: Chart) -> None:
    files = {one["metadata"]["name"]: one for one in yaml.safe_load_all(MONITORS.read_text())}
    for name, one in chart.objects(EVERYTHING).of("PodMonitor").items():
        (made,), (meant,) = one["spec"]["podMetricsEndpoints"], files[name]["spec"]["podMetricsEndpoints"]
        for key in ("relabelings", "honorLabels"):
            assert made.get(key) == meant.get(key), (name, key)


COMMANDS = sorted({step.line for step in typed.every() if step.line.startswith("helm ")})


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_on_the_pages_is_one_that_helm_takes(chart: Chart, line: str) -> None:
    words = shlex.split(line)
    verb = words[1:3] if words[1] == "get" else words[1:2]
    assert verb[0] in ("get", "install", "upgrade", "rollback", "uninstall")
    known = set(re.findall(r"--[a-z-]+", chart.run(*verb, "--help").stdout))
    assert {word for word in words if word.startswith("--")} <= known
    assert all((ROOT / word).is_dir() for word in words if word.startswith("manifests/"))


def test_the_values_on_the_pages_are_those_of_the_chart(chart: Chart) -> None:
    given = [word for line in COMMANDS for flag, word in itertools.pairwise(shlex.split(line)) if flag == "--set"]
    page = (ROOT / "docs/helm.md").read_text()
    given += re.findall(r"`([a-zA-Z.-]+=[^`]+)`", page)
    assert len(given) > 15
    for setting in given:
        done = chart.run("template", "g", CHART, "--kube-version=v1.36.3", "--set", setting)
        assert done.returncode == 0, done.stderr


def test_a_packaged_chart_makes_the_same(chart: Chart, tmp_path: Path) -> None:
    packed = chart.run("package", CHART, "--destination", tmp_path)
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.iterdir()
    made = [chart.run("template", "g", source, "--kube-version=v1.34.4") for source in (archive, CHART)]
    assert made[0].stdout == made[1].stdout != ""
    assert not made[0].stderr, "no links are told of"
