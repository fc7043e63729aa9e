"""`python -m deviceplugin.partitioner`: the helper that makes MIG instances, in the plugin's image."""

from collections.abc import Callable

from protos import process


def _load() -> Callable[..., None]:
    from deviceplugin.partitioner.command import command

    return command


if __name__ == "__main__":
    process.run("python -m deviceplugin.partitioner", _load)
