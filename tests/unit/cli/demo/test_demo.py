"""The demo as a newcomer runs it, with real processes, and much faster."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from extender.cli.demo import yours
from tests.unit.cli.run import gangshare
from tests.unit.cli.test_ui import snapshot

TOLD = (
    r"Assembling  gang default/train waits for its members: 3 of 4 members exist\n"
    r".*  Waiting     gang default/train waits until all its members fit: needs 3×2 whole GPUs.* short by .*\n"
    r".*  Running     4 of 4 members bound\n"
    r".*  Degraded    gang default/train lost members and runs with fewer than its minimum: 3 of 4 members are bound\n"
    r".*  Running     4 of 4 members bound\n"
    r"train-worker-0-\w+ replaces it on"
)
"""What becomes of the gang, in this order."""
TENANTS = (
    r"it runs with 8 workers and borrows 4 GPUs\.\n"
    r".*It runs after \d+\.\d s: 4 workers of elastic were evicted, and no more; the other 4 kept running\.\n"
    r".*elastic has grown back to 8 workers"
)
"""And before that of two tenants."""
PLACED = r"default/openb-pod-0001 +11 GiB +46\n"


class Demo:
    """A demo that runs, with all that it has printed so far."""

    def __init__(self, page: Path, *args: str) -> None:
        self._page = page
        with page.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "extender", "demo", "--speed", "10", *args], stdout=output, stderr=output
            )

    @property
    def page(self) -> str:
        return self._page.read_text()

    def until(self, text: str) -> None:
        end = time.monotonic() + 90
        while text not in self.page:
            assert self.process.poll() is None, self.page
            assert time.monotonic() < end, self.page
            time.sleep(0.05)

    def left(self) -> list[str]:
        """Processes of this demo's cluster that still run."""
        folders = re.findall(r"/tmp/gs-\w+", self.page)
        commands = (entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [line for command in commands if (line := _read(command)) and any(f in line for f in folders)]


def _read(path: Path) -> str:
    try:
        return path.read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path / "page", "--pods", "60", "--serve", "--ui")
    yield demo
    demo.process.send_signal(signal.SIGTERM)
    demo.process.wait(30)


EXPECTED = {
    " whatif -f ": "would never start, because",
    "explain pod my-pod": "does not divide by",
    "logs my-pod": "GANGSHARE_GPU_MEM_MIB=2048",
    "pods/my-pod/log": "GANGSHARE_GPU_MEM_MIB=2048",
    "get pod my-pod": "Running",
    "describe pod my-pod": "does not divide by",
    " top": "hgx-h200",
    "get nodes": "hgx-h200",
    "get queues,gpuclasses": "FAIRSHARE",
}
"""What commands print, by a part of them."""


def typed(page: str, env: Mapping[str, str]) -> None:
    """Type the commands below "Now you" in their order; each must end well, and print what is expected."""
    commands = [line.strip() for line in page[page.index("Now you") :].splitlines() if line.startswith("  ")]
    refused = True
    for command in commands:
        refused = refused and not any(verb in command for verb in (" annotate ", " PATCH "))
        expected = next((text for part, text in EXPECTED.items() if part in command), "")
        if "explain pod my-pod" in command and not refused:
            expected = "default/my-pod runs on"
        _run(command, expected, env)
    assert len(commands) > 8
    assert not refused


def _run(command: str, expected: str, env: Mapping[str, str]) -> None:
    """A person types slower than the extender hears of changes, so a command may be typed again."""
    end = time.monotonic() + 30
    while True:
        ran = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, **env}
        )
        if ran.returncode == 0 and expected in ran.stdout:
            return
        assert time.monotonic() < end, (command, expected, ran)
        time.sleep(0.1)


def api_of(kubeconfig: str) -> str:
    (cluster,) = yaml.safe_load(Path(kubeconfig).read_text())["clusters"]
    return str(cluster["cluster"]["server"])


def delete_my_pod(api: str) -> None:
    pod = f"{api}/api/v1/namespaces/default/pods/my-pod"
    _run(f"curl -fsS -o /dev/null -X DELETE {pod}; ! curl -fsS -o /dev/null {pod}", "", {})


def test_without_kubectl_the_page_says_where_to_get_it_and_goes_on_with_curl() -> None:
    page = "\n".join(yours.guide(yours.Place(Path("/tmp/k"), "http://api", "http://status"), "p", kubectl=False))
    assert "https://kubernetes.io/docs/tasks/tools" in page
    assert "kubectl " not in page.replace("kubectl is not on the PATH", "")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc")
def test_a_newcomer_sees_pods_on_gpus_looks_around_and_leaves_nothing_behind(
    serving: Demo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serving.until("explain group train\n")
    assert "The cluster stays up until Ctrl-C" in serving.page
    assert "arrived  60/60" in serving.page
    assert re.search(PLACED, serving.page)
    assert re.search(r"of \d\d containers with GPUs agree, and gang default/train is complete", serving.page)
    assert re.search(f"{TENANTS}.*{TOLD}", serving.page, re.DOTALL)
    assert "\x1b" not in serving.page
    serving.until("until Ctrl-C. Whoever has this URL")
    assert [node["name"] for node in snapshot(re.findall(r"http://\S+token=\S+", serving.page)[0])["nodes"]][:2] == [
        "a10",
        "dgx-a100",
    ]
    said = dict(re.findall(r"(KUBECONFIG|GANGSHARE_SERVER)=(\S+)", serving.page))
    said["KUBECACHEDIR"] = str(tmp_path)
    monkeypatch.setenv("GANGSHARE_SERVER", said["GANGSHARE_SERVER"])
    assert re.search(PLACED, gangshare(capsys, "top", "--pods").out)
    assert "gang default/train runs with" in gangshare(capsys, "explain", "group", "train").out
    assert "openb-pod-0001 runs on" in gangshare(capsys, "explain", "pod", "openb-pod-0001").out
    typed(serving.page, said)
    delete_my_pod(api := api_of(said["KUBECONFIG"]))
    monkeypatch.setattr(sys, "argv", ["extender/__main__.py"])
    place = yours.Place(Path(said["KUBECONFIG"]), api, said["GANGSHARE_SERVER"])
    typed("\n".join(yours.guide(place, "openb-pod-0001", kubectl=False)), said)
    assert serving.left()
    serving.process.send_signal(signal.SIGINT)
    assert serving.process.wait(30) == 0
    assert serving.left() == []
    assert not Path(said["KUBECONFIG"]).parent.exists()


def test_the_end_says_how_to_run_a_pod_of_ones_own(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "page", "--pods", "1", "--speed", "100")
    assert demo.process.wait(90) == 0
    assert demo.page.splitlines()[-1] == yours.SERVE


def test_a_signal_before_the_end_says_so_in_its_status(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "page")
    demo.until("arrived")
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(30) == 130
    assert "Now you" not in demo.page


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (("--ui",), "--ui shows a cluster that stays up: expected --serve or --empty"),
        (("--pods", "401"), "--pods is 401: expected 1 to 400"),
        (("--speed", "0"), "--speed is 0: expected"),
    ],
)
def test_a_bad_wish_is_named(said: tuple[str, str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = gangshare(capsys, "demo", *said)
    assert ran.code == 1
    assert named in ran.err
