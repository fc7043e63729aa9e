"""`python -m deviceplugin.usage`: the component `usage` runs this in the plugin's image."""

from collections.abc import Callable

from protos import process


def _load() -> Callable[..., None]:
    from deviceplugin.usage.command import command

    return command


if __name__ == "__main__":
    process.run("python -m deviceplugin.usage", _load)
