"""`python -m deviceplugin.mps`: the MPS component, in the plugin's image."""

from collections.abc import Callable

from protos import process


def _load() -> Callable[..., None]:
    from deviceplugin.mps.command import command

    return command


if __name__ == "__main__":
    process.run("python -m deviceplugin.mps", _load)
