"""Proxies of the environment, as client-go finds them."""

import pytest

from protos.kube import proxies

SERVER = "https://10.96.0.1:443"


def found(server: str = SERVER, **environment: str) -> str | None:
    return proxies.of_environment(server, environment)


def test_without_a_variable_the_server_is_reached_directly() -> None:
    assert found() is None
    assert found(HTTP_PROXY="http://p:1") is None


def test_the_scheme_of_the_server_says_which_variable_counts() -> None:
    both = {"HTTP_PROXY": "http://plain:1", "https_proxy": "http://tls:2"}
    assert found(**both) == "http://tls:2"
    assert found("http://api.example:8080", **both) == "http://plain:1"


def test_a_proxy_without_a_scheme_is_an_http_proxy() -> None:
    assert found(HTTPS_PROXY="proxy.example:3128") == "http://proxy.example:3128"


@pytest.mark.parametrize("server", ["https://localhost:6443", "https://127.0.0.1:6443", "https://[::1]:6443"])
def test_this_machine_needs_no_proxy(server: str) -> None:
    assert found(server, HTTPS_PROXY="http://p:1") is None


@pytest.mark.parametrize(
    ("server", "excluded"),
    [
        (SERVER, "*"),
        (SERVER, "other, 10.96.0.1"),
        (SERVER, "10.0.0.0/8"),
        (SERVER, "10.96.0.1:443"),
        ("https://[fd00::1]:6443", "fd00::/8"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443"),
        ("https://api.example.com", "example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://api.example.com", "*.EXAMPLE.com"),
        ("https://API.example.com.", "api.example.com:443"),
    ],
)
def test_no_proxy_names_servers(server: str, excluded: str) -> None:
    assert found(server, HTTPS_PROXY="http://p:1", NO_PROXY=excluded) is None


@pytest.mark.parametrize(
    ("server", "excluded"),
    [
        (SERVER, "10.97.0.0/16,10.96.0.10"),
        (SERVER, "10.96.0.1:6443"),
        ("https://example.com", ".example.com"),
        ("https://badexample.com", "example.com"),
        ("https://api.example.com", "10.0.0.0/8,:,,"),
    ],
)
def test_others_go_through_the_proxy(server: str, excluded: str) -> None:
    assert found(server, HTTPS_PROXY="http://p:1", NO_PROXY=excluded) == "http://p:1"
