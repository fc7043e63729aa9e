"""A real Prometheus: Debian's package `prometheus`, which also brings promtool."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml

from extender.sim.process import Process, free_port
from tests.cluster import assets

TOOLS = ("prometheus", "promtool")


class Target(NamedTuple):
    """What is scraped, with the labels that Kubernetes' service discovery would give it."""

    port: int
    labels: Mapping[str, str]
    honor_labels: bool = False


class Answer(NamedTuple):
    """What a query found: the values of all series, or why there are none."""

    values: tuple[float, ...]
    error: str = ""


def require() -> None:
    """See that the tools are there; on a CI machine install them. Raises MissingAsset."""
    if not all(map(shutil.which, TOOLS)):
        assets.require(TOOLS)


def promtool(*args: str, given: bytes = b"") -> str:
    """What promtool says; raises AssertionError with that if it refuses."""
    done = subprocess.run(["promtool", *args], input=given, capture_output=True, check=False)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, text
    return text


class Prometheus:
    """Scrapes the targets each second, and evaluates the rules as often; as an async context manager."""

    def __init__(self, folder: Path, targets: Sequence[Target], rules: Path) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/api/v1"
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(_configuration(targets, rules)))
        options = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
        self.process = Process(
            "prometheus", ["prometheus", *options, f"--web.listen-address=127.0.0.1:{self._port}"], folder
        )

    async def __aenter__(self) -> Prometheus:
        await self.process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.process.stop()

    async def ask(self, expr: str) -> Answer:
        """The answer to a query, as of now."""
        answer = await self.get("query", query=expr)
        if answer["status"] != "success":
            return Answer((), answer["error"])
        return Answer(tuple(float(each["value"][1]) for each in answer["data"]["result"]))

    async def get(self, path: str, **params: str) -> Any:
        """The answer of the API; while it does not listen, an error."""
        self.process.check()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/{path}", params=params) as answer:
                return await answer.json()
        except aiohttp.ClientError as error:
            return {"status": "error", "error": str(error)}


def _configuration(targets: Sequence[Target], rules: Path) -> dict[str, Any]:
    jobs = [
        {
            "job_name": f"gangshare-{number}",
            "honor_labels": target.honor_labels,
            "static_configs": [{"targets": [f"127.0.0.1:{target.port}"], "labels": dict(target.labels)}],
        }
        for number, target in enumerate(targets)
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return {"global": every, "rule_files": [str(rules)], "scrape_configs": jobs}
