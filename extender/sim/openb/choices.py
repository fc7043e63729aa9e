"""The choices of command-line options, without the imports that the replays need."""

from typing import Literal

Policy = Literal["random", "bestfit", "packing", "clustering", "dotprod", "fgd", "gangshare"]
"""A published policy, or our own engine."""
ListName = Literal[
    "default",
    "gpushare40",
    "gpushare100",
    "multigpu20",
    "multigpu50",
    "gpuspec10",
    "gpuspec33",
    "typed33",
    "cpu125",
    "cpu200",
    "cpu250",
    "cpuonly250",
]
"""The list itself, or a list derived from it (`derive`)."""
