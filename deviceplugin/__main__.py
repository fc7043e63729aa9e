"""`python -m deviceplugin`: the plugin's image runs this."""

from collections.abc import Callable

from protos import process


def _load() -> Callable[..., None]:
    from deviceplugin.command import command

    return command


if __name__ == "__main__":
    process.run("python -m deviceplugin", _load)
