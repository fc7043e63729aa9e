"""`python -m deviceplugin.limits`: the helper that sets limits, in the plugin's image."""

from collections.abc import Callable

from protos import process


def _load() -> Callable[..., None]:
    from deviceplugin.limits.command import command

    return command


if __name__ == "__main__":
    process.run("python -m deviceplugin.limits", _load)
