"""What pods ask, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from protos.contract.ask import ContainerAsk, PodAsk
from tests.unit.engine.fleets import an_ask, whole


def asks(mem: int, mem_of_each: int) -> st.SearchStrategy[PodAsk]:
    """Whole GPUs; parts of some, of up to `mem` units; or several containers with up to `mem_of_each`."""
    parts = st.builds(
        lambda gpus, mem, slices, spread: an_ask(gpus, mem=mem, slices=slices, spread=spread),
        st.integers(1, 3), st.integers(1, mem), st.integers(0, 60), st.booleans(),
    )  # fmt: skip
    return st.builds(whole, st.integers(1, 3)) | parts | st.builds(_of_many, _several(mem_of_each))


def _several(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, most), min_size=2, max_size=3)


def _of_many(mems: list[int]) -> PodAsk:
    return PodAsk(containers=tuple(ContainerAsk(name=f"c{i}", gpus=1, mem=m) for i, m in enumerate(mems)))
