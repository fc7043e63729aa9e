"""`python -m tests.unit.deviceplugin.mps.killed FOLDER PROTOCOL`: a component of two GPUs, which a test kills."""

import asyncio
import sys
from pathlib import Path
from typing import Literal

from tests.unit.deviceplugin.fake_nvml import Gpu
from tests.unit.deviceplugin.mps.conftest import World


def main(folder: str, protocol: Literal[2, 3]) -> None:
    world = World(Path(folder), protocol)
    world.nvml.gpus.append(Gpu(1))
    asyncio.run(world.component().run(asyncio.Event()))


if __name__ == "__main__":
    main(sys.argv[1], 3 if sys.argv[2] == "3" else 2)
