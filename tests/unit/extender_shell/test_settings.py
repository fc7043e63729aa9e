"""The extender's settings and their errors."""

import socket

import pytest

from extender.server import run
from extender.settings import Address, Settings, address
from protos.contract.shared_settings import SettingsError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:1", "127.0.0.1", 1),
        (":12346", "", 12346),
        ("[::1]:80", "::1", 80),
        ("node.example:65535", "node.example", 65535),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert address(text) == Address(host, port)
    assert address(str(address(text))) == Address(host, port)


@pytest.mark.parametrize("text", ["", "12345", "host", "host:", "host:http", "host:65536", "::1:80", "a b:1", "[::1]"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="expected host:port") as refused:
        address(text)
    assert repr(text) in str(refused.value)


def test_our_scheduler_is_known_by_the_hostname_unless_told_otherwise() -> None:
    assert Settings().identity_prefix == socket.gethostname() + "_"
    assert Settings(lease_identity_prefix="a_").identity_prefix == "a_"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"unit_mib": 0}, "--memory-unit is 0: expected 1 or more"),
        ({"slices_per_gpu": 0}, "--slices-per-gpu is 0"),
        ({"offer_limit": 0}, "--offer-limit is 0"),
        ({"score_tolerance": -1}, "--score-tolerance is -1"),
        ({"score_tolerance": 1001}, "at most 1000"),
        ({"renew_deadline_s": 0.0}, "above zero"),
        ({"bind_timeout_s": 0.0}, "--bind-timeout is 0.0: expected a number of seconds above zero"),
        ({"bind_timeout_s": float("inf")}, "--bind-timeout is inf"),
        ({"gang_bind_timeout_s": float("nan")}, "--gang-bind-timeout is nan"),
        ({"conflicting_leases": ("volcano",)}, "'volcano': expected namespace/name"),
        ({"conflicting_leases": ("a/",)}, "'a/': expected namespace/name"),
        ({"locality_labels": ("rack", "a zone")}, "'a zone': expected keys of labels, each once"),
        ({"locality_labels": ("rack", "rack")}, "--locality-labels has 'rack'"),
        ({"drain_taints": ("a taint",)}, "--drain-taints has 'a taint': expected keys of taints or labels, each once"),
        ({"drain_taints": ("spot=a", "spot=b")}, "--drain-taints has 'spot'"),
        ({"gang_bind_timeout_s": -1.0}, "--gang-bind-timeout is -1.0"),
        ({"replacement_hold_s": -1.0}, "--replacement-hold is -1.0: expected a number of seconds from zero on"),
        ({"replacement_hold_s": float("inf")}, "--replacement-hold is inf"),
        ({"scheduler_healthz": "localhost:10259"}, "expected a URL"),
        ({"resource_mem": "a/b", "resource_slice": "a/b"}, "expected different names"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(wrong: dict[str, object], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        Settings(**wrong)  # type: ignore[arg-type]


def test_binds_are_kept_waiting_for_half_of_the_schedulers_patience_at_most() -> None:
    usual = run.decisions(Settings()).patience
    assert (usual.hold_s, usual.gang_bind_timeout_s) == (60.0, 30.0)
    assert usual.stuck_s < usual.hold_s
    short = run.decisions(Settings(bind_timeout_s=20.0, gang_bind_timeout_s=5.0)).patience
    assert (short.hold_s, short.stuck_s, short.gang_bind_timeout_s) == (10.0, 10.0, 5.0)


def test_the_webhook_is_told_whose_pods_it_gates() -> None:
    where = Address("", 12348)
    assert Settings(gate_webhook_listen=where, scheduler_names=("gangshare",)).gate_webhook_listen == where
    with pytest.raises(SettingsError, match="--scheduler-names is empty: expected the schedulers whose pods"):
        Settings(gate_webhook_listen=where)
