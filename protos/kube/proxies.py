"""The proxy for a server by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as in kubectl.

Source: golang.org/x/net/http/httpproxy, which client-go uses.
"""

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

_PORTS = {"http": 80, "https": 443}


def of_environment(server: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the proxy for this server's URL, None for a direct connection."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    excluded = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not proxy or _direct(url, excluded):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _direct(url: SplitResult, excluded: str) -> bool:
    host, port = (url.hostname or "").rstrip("."), url.port or _PORTS.get(url.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in excluded.split(",") if entry.strip()]
    return any(_matches(entry, host, port, address) for entry in entries)


def _matches(entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """Whether an entry of NO_PROXY names the host: `*`, an address, a network, a domain; perhaps with a port."""
    if entry == "*":
        return True
    try:
        network = ipaddress.ip_network(entry, strict=False)
        return address is not None and address in network
    except ValueError:
        name, _, wanted = entry.rpartition(":")
        if wanted.isdecimal() and name:
            return int(wanted) == port and _matches(name.strip("[]"), host, port, address)
    domain = entry.removeprefix("*")
    return host.endswith(domain) if domain.startswith(".") else host == domain or host.endswith(f".{domain}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
