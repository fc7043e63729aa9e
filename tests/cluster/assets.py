"""What a real cluster is made of: Debian's tools, Kubernetes built from its Go modules, two images made of busybox.

Built once per version into `$GANGSHARE_CACHE` (default ~/.cache/gangshare); a second run takes them from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import images

DEFAULT_VERSION = "1.34.4"
CNI_PLUGINS = Path("/usr/lib/cni")
COMMANDS = ("kube-scheduler", "kube-apiserver", "kubelet", "kube-controller-manager", "kubectl")
PACKAGES = {  # a program, or a file's path -> the Debian package that brings it
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    str(CNI_PLUGINS / "ptp"): "containernetworking-plugins",
    "iptables": "iptables",
    "openssl": "openssl",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
_OF_OTHERS = ("buildah", "debootstrap", "prometheus", "promtool")
"""What only some tests need, and ask for themselves."""
CLUSTER_TOOLS = tuple(tool for tool in PACKAGES if tool not in _OF_OTHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Go module whose programs are built as they are."""

    name: str
    path: str
    version: str
    language: str
    """The version of Go that its go.mod demands."""
    commands: tuple[str, ...]
    cmd: str = "/cmd/{}"
    """The package of a command, below the module."""
    folders: tuple[str, ...] = ()
    """Folders of the module whose files are kept, too."""

    def package(self, command: str) -> str:
        return self.path + self.cmd.format(command)


CONTAINERD = Module(
    name="containerd",
    path="github.com/containerd/containerd",
    version="1.7.29",
    language="1.24.0",
    commands=("containerd", "containerd-shim-runc-v2"),
)
HELM = Module(name="helm", path="helm.sh/helm/v3", version="3.22.0", language="1.26.0", commands=("helm",))
LOGIN_PROXY = Module(
    name="oauth2-proxy",
    path="github.com/oauth2-proxy/oauth2-proxy/v7",
    version="7.15.6",
    language="1.26.0",
    commands=("oauth2-proxy",),
    cmd="",
)
PROMETHEUS_OPERATOR = Module(
    name="prometheus-operator",
    path="github.com/prometheus-operator/prometheus-operator",
    version="0.85.0",
    language="1.24.0",
    commands=("operator",),
    folders=("example/prometheus-operator-crd",),
)
KARPENTER = Module(
    name="karpenter",
    path="sigs.k8s.io/karpenter",
    version="1.14.0",
    language="1.26.0",
    commands=("kwok",),
    cmd="/{}",
    folders=("kwok/charts/crds", "kwok/apis/crds"),
)
"""With the provider that its own tests have, whose nodes are objects."""


class MissingAsset(Exception):
    """This machine lacks something the real cluster needs; the text is one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """The programs of one Kubernetes version, and the image archives every node starts with."""

    version: str
    programs: Path
    images: tuple[Path, ...]

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    def program(self, name: str) -> Path:
        return self.programs / name


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def cache() -> Path:
    return Path(os.environ.get("GANGSHARE_CACHE") or Path.home() / ".cache" / "gangshare").absolute()


def provide(version: str | None = None, say: Callable[[str], None] = print) -> Assets:
    """Everything for Kubernetes `version` (default `$KUBE_VERSION`, else DEFAULT_VERSION), built when not cached.

    `say` hears of the long steps.
    Raises MissingAsset when this is not root, a tool is missing or the build fails.
    """
    version = version or os.environ.get("KUBE_VERSION") or DEFAULT_VERSION
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        raise MissingAsset(f"KUBE_VERSION is {version!r}: a version such as {DEFAULT_VERSION} is expected")
    require(CLUSTER_TOOLS)
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        raise MissingAsset("the real cluster needs CAP_SYS_ADMIN: `unshare --mount` is refused here")
    return Assets(version=version, programs=_programs(version, say), images=images.provide(cache() / "images"))


def require(tools: Iterable[str]) -> None:
    """See that every one of `tools` is installed; on a CI machine install what is not. Raises MissingAsset."""
    if os.geteuid() != 0:
        raise MissingAsset("the real cluster needs root (mount and network namespaces, cgroups)")
    missing = _missing(tools)
    if not missing:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if in_ci():
        for command in (["apt-get", "update", "-qq"], install):
            subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        missing = _missing(tools)
    if missing:
        raise MissingAsset(f"tools of the real cluster are missing: {' '.join(install[:2])} {' '.join(missing)}")


def containerd_with_cdi(say: Callable[[str], None] = print) -> Path:
    """The folder of a containerd that knows CDI devices, which Debian's is too old for; built when not cached.

    Raises MissingAsset.
    """
    return _of_module(CONTAINERD, say)


def helm(say: Callable[[str], None] = print) -> Path:
    """The program helm, built when not cached; raises MissingAsset."""
    return _of_module(HELM, say) / "helm"


def login_proxy(say: Callable[[str], None] = print) -> Path:
    """The program oauth2-proxy, built when not cached; raises MissingAsset."""
    return _of_module(LOGIN_PROXY, say) / "oauth2-proxy"


def prometheus_operator(say: Callable[[str], None] = print) -> tuple[Path, Path]:
    """The Prometheus Operator and the folder of its definitions, built when not cached; raises MissingAsset."""
    programs = _of_module(PROMETHEUS_OPERATOR, say)
    return programs / "operator", programs.parent / "files"


def karpenter(say: Callable[[str], None] = print) -> tuple[Path, Path]:
    """Karpenter and the folder of its definitions, built when not cached; raises MissingAsset."""
    programs = _of_module(KARPENTER, say)
    return programs / "kwok", programs.parent / "files"


def _of_module(module: Module, say: Callable[[str], None]) -> Path:
    """The folder of a module's programs, built when not cached; raises MissingAsset."""
    home = cache() / f"{module.name}-{module.version}"
    programs = home / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lock"), tempfile.TemporaryDirectory(dir=home, prefix="build-") as folder:
        missing = [name for name in module.commands if not (programs / name).exists()]
        if missing:
            say(f"building {module.name} {module.version}, once, into {programs}")
            _build_module(module, missing, Path(folder), programs)
    return programs


def _build_module(module: Module, missing: Iterable[str], source: Path, programs: Path) -> None:
    required = f"require {module.path} v{module.version}"
    (source / "go.mod").write_text(f"module node\ngo {module.language}\n{required}\n")
    imports = "".join(f'import _ "{module.package(name)}"\n' for name in module.commands)
    (source / "tools.go").write_text(f"//go:build tools\n\npackage node\n\n{imports}")
    _go(source, "mod", "tidy")
    whole = Path(_go(source, "list", "-m", "-f", "{{.Dir}}", module.path).strip())
    for folder in module.folders:
        shutil.copytree(whole / folder, programs.parent / "files", dirs_exist_ok=True)
    for name in missing:
        _go(source, "build", "-trimpath", "-ldflags=-s -w", "-o", str(source / name), module.package(name))
        (source / name).rename(programs / name)


def _missing(tools: Iterable[str]) -> list[str]:
    return sorted({PACKAGES[tool] for tool in tools if not shutil.which(tool)})


def _programs(version: str, say: Callable[[str], None]) -> Path:
    home = cache() / f"kubernetes-{version}"
    programs = home / "bin"
    if _complete(programs):
        return programs
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lock"):
        if not _complete(programs):
            _build(version, home, say)
    return programs


def _complete(programs: Path) -> bool:
    return all((programs / name).exists() for name in COMMANDS)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(version: str, home: Path, say: Callable[[str], None]) -> None:
    """Build what is not there yet; each program appears under its name only when it is whole."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="build-") as folder:
        source = Path(folder)
        _write_module(version, source)
        for name in COMMANDS:
            if (programs / name).exists():
                continue
            say(f"building {name} {version}, once, into {programs}")
            built = source / name
            _go(source, "build", "-trimpath", f"-ldflags={_linker_flags(version)}", "-o", str(built), _package(name))
            built.rename(programs / name)


def _write_module(version: str, source: Path) -> None:
    """A module of our own: Kubernetes' own go.mod replaces its staging modules by relative paths, which no other can.

    Each staging module k8s.io/X of Kubernetes 1.Y.Z is published as k8s.io/X v0.Y.Z.
    """
    (source / "go.mod").write_text("module cluster\n")
    download = json.loads(_go(source, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
    theirs = Path(download["GoMod"]).read_text()
    staging = re.findall(r"^\s+(k8s\.io/\S+) =>", theirs, re.MULTILINE)
    language = re.search(r"^go (\S+)", theirs, re.MULTILINE)
    lines = [
        "module cluster",
        f"go {language[1] if language else '1.24.0'}",
        f"require k8s.io/kubernetes v{version}",
        *(f"replace {module} => {module} v0.{version.removeprefix('1.')}" for module in staging),
    ]
    (source / "go.mod").write_text("\n".join(lines) + "\n")
    imports = "".join(f'import _ "{_package(name)}"\n' for name in COMMANDS)
    (source / "tools.go").write_text(f"//go:build tools\n\npackage cluster\n\n{imports}")
    _go(source, "mod", "tidy")


def _package(name: str) -> str:
    return f"k8s.io/kubernetes/cmd/{name}"


def _linker_flags(version: str) -> str:
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    settings = [f"-X {package}.{key}={value}" for package in packages for key, value in stamps.items()]
    return " ".join(["-s -w", *settings])


def _go(source: Path, *arguments: str) -> str:
    """The output of a Go command; raises MissingAsset with the end of what it said."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not go:
        raise MissingAsset(
            "Go is needed once to build what the cluster is made of: https://go.dev/dl (its bin folder on PATH)"
        )
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    done = subprocess.run([go, *arguments], cwd=source, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        end = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise MissingAsset(f"`go {' '.join(arguments[:2])}` failed: {end}")
    return done.stdout
