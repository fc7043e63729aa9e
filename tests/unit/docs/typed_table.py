"""Which test runs which command of the pages (`typed`).

A key is a section (`PAGE#HEADING`) whose commands the test takes from the page, a single command, or a program.
A new command goes into `RUN_BY`, with the test that runs it; into `NOT_RUN` only if no test can.
"""

from __future__ import annotations

_HOWTOS = "tests/scenarios/test_howtos.py"
_LAPTOP = "tests/scenarios/test_laptop.py::test_the_first_ten_minutes"
_LIFECYCLE = "tests/cluster/test_lifecycle.py"
_UNINSTALLED = f"{_LIFECYCLE}::test_an_uninstallation_leaves_running_pods_and_then_nothing_of_ours"
_SAVED = f"{_LIFECYCLE}::test_queues_and_classes_that_were_saved_are_applied_again"
_RESTORED = f"{_LIFECYCLE}::test_after_a_restore_of_etcd_the_books_are_those_of_the_backup"
_TRUSTED = "tests/cluster/test_chart.py::test_what_the_api_server_asks_is_trusted_by_the_name_of_this_namespace"
_LAYOUTS = "tests/cluster/test_layouts.py::test_pods_run_on_and_gangs_wait_on_when_the_layout_changes"
_VERSIONS = "tests/cluster/test_layouts.py::test_a_later_version_of_a_definition_keeps_what_is_stored"
_NODES = "tests/cluster/test_nodes.py"
_PAGES = "tests/scenarios/test_pages.py"

RUN_BY: dict[str, str] = {
    "docs/autoscalers.md#Scale from zero": f"{_PAGES}::test_tags_for_autoscalers",
    "docs/dashboards.md#Alerts": f"{_PAGES}::test_runbooks_get_another_address",
    "docs/defragmentation.md#Defragmentation": f"{_PAGES}::test_defragmentation",
    "docs/elastic.md#ET-operator's TrainingJobs": f"{_PAGES}::test_an_elastic_job",
    "docs/elastic.md#Scale in": f"{_PAGES}::test_an_elastic_job",
    "docs/helm.md#Another namespace": f"{_PAGES}::test_labels_and_taints",
    "docs/howtos.md#Drain a rack": f"{_HOWTOS}::test_a_rack_is_drained",
    "docs/howtos.md#Find who holds GPUs and does nothing": "tests/scenarios/test_measuring.py"
    "::test_who_takes_more_and_who_is_idle_is_shown_and_told",
    "docs/howtos.md#Give team A half of the GPUs": f"{_HOWTOS}::test_team_a_gets_its_half_back_and_no_more",
    "docs/howtos.md#Run four models on one GPU": f"{_HOWTOS}::test_four_models_share_one_gpu",
    "docs/howtos.md#Share by day and night": f"{_HOWTOS}::test_queues_by_day_and_night",
    "docs/howtos.md#Start a gang of 64 GPUs": f"{_HOWTOS}::test_a_gang_of_64_gpus_starts_once_small_pods_have_moved",
    "docs/isolation.md#Resize a running pod": "tests/scenarios/test_resize.py::test_the_commands_of_the_page",
    "docs/isolation.md#What a pod demands": f"{_PAGES}::test_a_namespace_demands_isolation",
    "docs/jobs.md#Measured": f"{_PAGES}::test_replays",
    "docs/laptop.md#Ask for what does not exist": _LAPTOP,
    "docs/laptop.md#Look around": _LAPTOP,
    "docs/laptop.md#Share a GPU": _LAPTOP,
    "docs/laptop.md#Start a gang": _LAPTOP,
    "docs/measuring.md#See it": "tests/scenarios/test_measuring.py"
    "::test_who_takes_more_and_who_is_idle_is_shown_and_told",
    "docs/mig.md#kube-scheduler": f"{_PAGES}::test_kube_schedulers_configuration",
    "docs/nvidia-plugin.md#Switch": f"{_PAGES}::test_labels_and_taints",
    "docs/operations.md#Cordon a GPU": f"{_PAGES}::test_a_gpu_is_cordoned_and_uncordoned",
    "docs/operations.md#Network policies": f"{_PAGES}::test_labels_and_taints",
    "docs/preemption.md#Preemption": f"{_PAGES}::test_a_preemption",
    "docs/queues.md#Move a pending workload": f"{_PAGES}::test_pending_workloads_move_to_a_queue",
    "docs/queues.md#Stop a queue": f"{_PAGES}::test_a_queue_is_stopped_and_resumed",
    "docs/layouts.md#From own to shared": _LAYOUTS,
    "docs/upgrade.md#Versions of the definitions": _VERSIONS,
    "docs/nodes.md#A node is drained": f"{_NODES}::test_a_drained_node_is_empty_and_its_pods_start_elsewhere",
    "docs/nodes.md#A node is replaced": f"{_NODES}::test_a_machine_of_the_same_name_has_its_own_gpus",
    "docs/nodes.md#Under running pods": f"{_NODES}::test_a_pod_on_a_replaced_machine_is_told_and_blocks_no_other",
    "docs/nodes.md#A node joins": f"{_NODES}::test_a_pending_pod_starts_on_a_node_that_joins",
    "docs/troubleshooting.md#A gate stays": f"{_PAGES}::test_a_gate_is_removed_by_hand",
    "docs/upgrade.md#Roll back": f"{_LIFECYCLE}::test_a_rollback_with_a_gang_that_runs_and_one_that_waits",
    "docs/restore.md#Restore etcd": _RESTORED,
    "docs/restore.md#Restore the objects": _SAVED,
    "docs/restore.md#Save etcd": _RESTORED,
    "docs/restore.md#Save the objects": _SAVED,
    "docs/rotation.md#Renew the certificates of the webhook and of the aggregated API": _TRUSTED,
    "docs/uninstall.md#Before": _UNINSTALLED,
    "docs/uninstall.md#Remove the release": _UNINSTALLED,
    "docs/uninstall.md#Remove what is left": _UNINSTALLED,
    "docs/upgrade.md#Upgrade": f"{_LIFECYCLE}::test_an_upgrade_with_pods_that_run_and_a_gang_that_waits",
    "docs/usage.md#Look at a cluster": f"{_PAGES}::test_look_at_a_cluster",
    "docs/usage.md#queue, move": f"{_PAGES}::test_the_commands_of_queues",
    "docs/usage.md#scheduler-config": f"{_PAGES}::test_kube_schedulers_configuration",
    "docs/usage.md#simulate": f"{_PAGES}::test_replays",
    "docs/whatif.md#Ask": "tests/unit/docs/test_whatif.py::test_these_are_all_commands_of_the_section",
    "manifests/README.md#Keep other schedulers off the GPU nodes": f"{_PAGES}::test_labels_and_taints",
    "manifests/samples/README.md#Samples": f"{_PAGES}::test_a_sample",
}
"""The test, as `PATH::FUNCTION`."""

_CHART = "tests/cluster/test_chart.py"
_INSTALLED = (
    "no registry has the images; from archives: "
    f"{_CHART}::test_from_nothing_to_a_running_sample_by_the_commands_that_are_told"
)
_AGGREGATED = "as another user: tests/cluster/test_visibility_api.py"
_DEMO = "with fewer pods, and faster: tests/unit/cli/demo/test_demo.py"

NOT_RUN: dict[str, str] = {
    "CONTRIBUTING.md#Set-up": "it makes the environment of the tests",
    "README.md#Install": _INSTALLED,
    "README.md#Try it": f"{_DEMO}::test_the_end_says_how_to_run_a_pod_of_ones_own",
    "docs/fake-profiles.md#Fake machines": "they run until they are stopped; as the embedded cluster starts them: "
    "tests/scenarios/test_mig_dynamic.py"
    "::test_an_instance_is_there_while_its_pod_is_and_who_overlaps_it_waits",
    "docs/gpu-cluster.md#Bare nodes": f"a label like others: {_PAGES}::test_labels_and_taints",
    "docs/helm.md#From kustomize to Helm": "with other images: "
    f"{_CHART}::test_helm_takes_over_what_kustomize_installed",
    "docs/helm.md#Install": _INSTALLED,
    "docs/helm.md#Nodes with another configuration": "with the name of a node of the test: "
    f"{_CHART}::test_a_node_gets_the_plugin_of_its_label_and_its_pods_run_on",
    "docs/helm.md#Upgrade and roll back": "in another namespace: "
    f"{_CHART}::test_an_upgrade_and_a_rollback_leave_pods_running_and_a_gang_waiting",
    "docs/high-availability.md#Watch it": "it takes replicas in pods: "
    "tests/cluster/test_install.py::test_the_leading_replica_is_replaced_when_it_goes",
    "docs/kind.md#Build the images": "kind, k3s and docker are not here",
    "docs/kind.md#Install": _INSTALLED,
    "docs/kind.md#Try it": f"the first of {_PAGES}::test_a_sample",
    "docs/isolation.md#A library of yours": "it takes a library that the project does not have, and changes the host",
    "docs/laptop.md#Start a cluster": f"as `python -m extender`: {_LAPTOP}",
    "docs/mig.md#On the node": "no test has MIG hardware, and elsewhere nothing changes",
    "docs/events.md#Mistakes at `kubectl apply`": "with other pods: "
    "tests/cluster/test_keys_policy.py::test_a_mistake_is_warned_of_and_denied_or_passed_over_where_the_namespace_says_so",
    "docs/operations.md#The secure port": "for accounts of the test: "
    "tests/cluster/test_reviews.py::test_the_extenders_account_learns_who_somebody_is_and_what_they_may",
    "docs/page.md#The page": "it runs until it is stopped; in the process of the test: "
    "tests/unit/cli/test_ui.py::test_it_asks_the_aggregated_api_with_the_kubeconfig",
    "docs/releasing.md#Steps": "it takes a base image and a registry; the steps one by one: "
    "tests/unit/release/test_release.py::test_wheel_and_sdist_hold_the_packages_and_come_out_the_same",
    "docs/releasing.md#The kubectl plugin": "krew is not here; the archive by a link as krew makes it: "
    "tests/unit/release/test_release.py::test_the_archive_of_the_kubectl_plugin_runs_by_a_link_as_krew_makes_it",
    "docs/usage.md#demo": f"{_DEMO}::test_a_newcomer_sees_pods_on_gpus_looks_around_and_leaves_nothing_behind",
    "docs/usage.md#top, classes, queues, explain": "the embedded cluster forwards no ports",
    "docs/visibility-api.md#Rights": "the role of the test is bound to a user: "
    "tests/cluster/test_visibility_api.py::test_pods_of_other_namespaces_are_counted_and_not_named",
    "docs/visibility-api.md#The aggregated API": f"{_AGGREGATED}::test_kubectl_knows_the_kinds_and_explains_them",
    "docs/whatif.md#Who may ask": f"{_AGGREGATED}"
    "::test_a_user_with_edit_asks_what_would_become_of_pods_and_nothing_is_stored",
    "docker": "the tests build both images with buildah (tests/cluster/builds.py)",
    "gangshare extender --mig-profiles 1g.99gb": "it runs until it is stopped",
    "gangshare queue create speech --deserved gpus=4 --dry-run -o yaml": "the embedded API server knows no dryRun; "
    "tests/unit/cli/test_queue_commands.py::test_a_dry_run_has_the_api_server_check_it",
    "kube-scheduler --config scheduler.yaml": "it runs until it is stopped: "
    "tests/cluster/test_scheduler_config.py::test_kube_scheduler_takes_every_layout",
    "manifests/helm/gangshare/README.md#Gangshare's Helm chart": _INSTALLED,
}
"""The reason why none runs it. A test that runs it in another form is named as `PATH::FUNCTION`."""
