"""Profiles of fake GPUs: found by name, and edited so that a GPU falls ill and recovers."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import yaml


class ProfileError(ValueError):
    """A profile or a GPU in it that does not exist."""


def text(profile: str) -> str:
    """The text of a profile: a file, or the name of one that is shipped with the plugin."""
    if Path(profile).is_file():
        return Path(profile).read_text()
    shipped = resources.files("deviceplugin") / "profiles" / f"{profile}.yaml"
    if not shipped.is_file():
        raise ProfileError(f"no profile {profile!r}: expected a YAML file or the name of a shipped profile")
    return shipped.read_text()


def set_health(path: Path, index: int, health: str) -> None:
    """Set the health (``ok``, ``sick:<why>``, ``mig``, ``gone``) of the GPU of that index, or ProfileError."""
    profile = yaml.safe_load(path.read_text())
    found = [gpu for place, gpu in enumerate(profile["gpus"]) if gpu.get("index", place) == index]
    if not found:
        raise ProfileError(f"{path} has no GPU {index}, but {len(profile['gpus'])} GPUs")
    found[0]["health"] = health
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(profile, sort_keys=False))
    new.replace(path)
