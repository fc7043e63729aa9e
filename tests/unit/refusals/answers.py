"""Why an attempt of kube-scheduler fails as a whole, and the test of the extender's shell that meets each sentence."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """A sentence with which a request of kube-scheduler fails."""

    to: str
    """What fails: all requests, or a bind."""
    sentence: str
    """`<what>` stands for what differs."""
    advice: str
    test: str
    """A test of tests/unit/extender_shell that meets it: FILE::NAME."""


ALL, BIND, BOTH = "all", "bind", "all, bind"
LEASE = "look at kube-scheduler, and at `--lease-name`, `--lease-namespace` and `--lease-identity-prefix`"
ANSWERS = [
    Answer(
        ALL,
        "the cluster's pods and nodes are still being listed",
        "nothing, the extender has just started",
        "test_verbs.py::test_verbs_answer_503_until_everything_was_read",
    ),
    Answer(
        ALL,
        "this extender is taking over and reads the cluster once more",
        "nothing",
        "test_takeover.py::test_losing_the_lease_closes_the_gate_and_regaining_it_lists_again",
    ),
    Answer(
        ALL,
        "the extender is stopping",
        "nothing, the next one takes over",
        "test_verbs.py::test_stopping_finishes_binds_and_refuses_new_questions",
    ),
    Answer(BOTH, "the Lease was not seen yet", LEASE, "test_leadership.py::test_nothing_seen_is_no_leadership"),
    Answer(
        BOTH,
        "the scheduler's Lease is held by <holder>",
        LEASE,
        "test_takeover.py::test_another_replica_is_ready_but_answers_503_and_writes_nothing",
    ),
    Answer(
        BOTH,
        "the scheduler's Lease has no holder",
        LEASE,
        "test_takeover.py::test_a_missing_lease_has_no_holder",
    ),
    Answer(
        BOTH,
        "the scheduler's Lease names <holder>, but was not seen renewed yet",
        "wait for a renewal",
        "test_leadership.py::test_a_first_sight_proves_no_renewal",
    ),
    Answer(
        BOTH,
        "<holder> did not renew the scheduler's Lease within <seconds> s",
        "look at kube-scheduler and at the API server",
        "test_takeover.py::test_a_bind_under_a_lease_that_is_not_renewed_is_an_error",
    ),
    Answer(
        BOTH,
        "Bindings of the former leader may be under way: <holder> holds the Lease <lease>",
        "nothing, it ends by itself; after a crash once that Lease has expired",
        "test_takeover.py::test_a_new_leader_reads_the_cluster_once_the_former_one_has_no_binding_under_way",
    ),
    Answer(
        BOTH,
        "another extender holds the Lease",
        "nothing, the Service leads to that one",
        "test_takeover.py::test_replicas_apart_from_a_scheduler_elect_one_and_the_other_takes_over",
    ),
    Answer(
        ALL,
        "another scheduler serves the same pods: <holder> renews the Lease <lease>",
        "let one scheduler serve these schedulerNames",
        "test_takeover.py::test_while_another_scheduler_serves_the_same_names_nothing_is_placed",
    ),
    Answer(
        BOTH,
        "Gangshare had an internal error; the pod is tried again",
        "report it with the traceback in the extender's log",
        "test_faults.py::test_a_bind_that_breaks_is_an_error_and_the_next_one_goes_through",
    ),
    Answer(
        BIND,
        "the bind was abandoned: the scheduler stopped waiting for its answer, or asked again",
        "nothing",
        "test_held.py::test_a_bind_held_on_another_node_takes_the_place_of_the_former",
    ),
    Answer(
        BIND,
        "the pod was replaced by another of the same name",
        "nothing",
        "test_bind.py::test_a_conflict_is_decided_by_the_pod",
    ),
    Answer(BIND, "the pod is gone", "nothing", "test_bind.py::test_a_conflict_is_decided_by_the_pod"),
    Answer(
        BIND,
        "the pod is already assigned to node <node>",
        "let one scheduler serve the pod",
        "test_bind.py::test_a_conflict_is_decided_by_the_pod",
    ),
    Answer(
        BIND,
        "the pod is already assigned to node <node>, with another allocation",
        "let one scheduler serve the pod",
        "test_bind.py::test_a_conflict_is_decided_by_the_pod",
    ),
]
