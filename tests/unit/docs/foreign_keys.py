"""The table of other products' keys and what to write instead, made of `protos/contract/foreign.py`.

`python -m tests.unit.docs.foreign_keys` prints it for `docs/coming-from.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from protos.contract import names
from protos.contract.foreign import ANNOTATIONS_OF_OTHERS, RESOURCES_OF_OTHERS, Units

UNITS = Units(names.Resources(), names.DEFAULT_SLICES_PER_GPU)
EXAMPLES = {
    "gpu-fraction": "0.5",
    "gpu-memory": "4096",
    "gpu-fraction-num-devices": "2",
    "hami.io/gpu-scheduler-policy": "spread",
    "hami.io/node-scheduler-policy": "binpack",
    "nvidia.com/use-gputype": "A100",
    "nvidia.com/nouse-gputype": "T4",
    "nvidia.com/use-gpuuuid": "GPU-1",
    "nvidia.com/nouse-gpuuuid": "GPU-1",
    "volcano.sh/vgpu-number": "2",
    "volcano.sh/gpu-number": "2",
    "koordinator.sh/gpu-memory": "8Gi",
    "tencent.com/vcuda-memory": "16",
    names.ALIYUN_MEM: "8",
}
"""Values in the unit of the key."""
USUAL_MEMORY, USUAL_SHARE = "4096", "25"


def table() -> str:
    """The rows by product."""
    found = sorted(_rows(), key=lambda row: row[0].lower())
    return "\n".join(
        [
            "| of | in a pod | write instead |",
            "|---|---|---|",
            *(f"| {of} | `{old}` | {new} |" for of, old, new in found),
        ]
    )


def _rows() -> Iterator[tuple[str, str, str]]:
    for place, keys in (("annotation", ANNOTATIONS_OF_OTHERS), ("limit", RESOURCES_OF_OTHERS)):
        for key, (product, rewrite) in keys.items():
            value = EXAMPLES.get(
                key, USUAL_MEMORY if "mem" in key and "percent" not in key and "ratio" not in key else USUAL_SHARE
            )
            kind, _, line = rewrite(value, UNITS).partition(" ")
            assert line, f"{key}: {value} means nothing"
            yield product, f"{place} {key}: {value}", f"{kind} `{line}`"


if __name__ == "__main__":
    print(table())
