"""The names of policies and lists, which commands offer before anything else is imported."""

from typing import Literal

Policy = Literal["random", "bestfit", "packing", "clustering", "dotprod", "fgd", "gangshare"]
"""Who decides: one of the published policies, or our own engine."""
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
"""The list itself, or one that is made from it (`derive`)."""
