"""The device nodes that let a process use a MIG instance: one of its GPU instance, one of its compute instance.

Source: NVIDIA Multi-Instance GPU User Guide, "Device nodes and capabilities".
"""

from pathlib import Path

MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
NODE = "/dev/nvidia-caps/nvidia-cap{}"
BYTES = 1 << 20
"""Of the table that are read; eight GPUs take some 30 KiB."""


def nodes(gpu: int, gi: int, ci: int, minors: Path = MINORS) -> tuple[str, ...]:
    """The nodes of an instance, with the minor number of its GPU; none if the driver's table lacks one of them."""
    table = _table(minors)
    found = (table.get(f"gpu{gpu}/gi{gi}/{part}access") for part in ("", f"ci{ci}/"))
    numbers = [number for number in found if number is not None]
    return tuple(NODE.format(number) for number in numbers) if len(numbers) == 2 else ()


def _table(minors: Path) -> dict[str, str]:
    """The minor number of each capability, as the driver writes them: `gpu0/gi1/access 12`."""
    try:
        with minors.open() as file:
            lines = (line.split() for line in file.read(BYTES).splitlines())
            return {words[0]: words[1] for words in lines if len(words) == 2 and words[1].isdecimal()}
    except (OSError, ValueError):
        return {}
