"""Which changes of an inventory are written at once."""

from __future__ import annotations

import msgspec
import pytest

from deviceplugin.publish import urgent
from protos.contract import inventory
from protos.contract.isolation import Isolation
from tests.unit.deviceplugin.builders import an_inventory

DRIVER, PROMISED = Isolation(memory="driver"), Isolation(why="driver 595.1 is older than 615")


@pytest.mark.parametrize(
    ("before", "after", "at_once"),
    [
        (DRIVER, PROMISED, True),
        (DRIVER, None, True),
        (PROMISED, DRIVER, False),
        (PROMISED, None, False),
        (None, None, False),
    ],
)
def test_isolation_that_fell_is_written_at_once(
    before: Isolation | None, after: Isolation | None, at_once: bool
) -> None:
    shown, wanted = (msgspec.structs.replace(an_inventory(16), isolation=each) for each in (before, after))
    assert urgent(inventory.encode(shown), wanted) is at_once


def test_a_lost_gpu_another_state_and_what_cannot_be_read_are_written_at_once() -> None:
    wanted = an_inventory(16, 16, health={"GPU-1": "sick:xid-79"})
    assert urgent(inventory.encode(an_inventory(16, 16)), wanted)
    assert not urgent(inventory.encode(wanted), an_inventory(16, 16))
    assert urgent(inventory.encode(msgspec.structs.replace(wanted, state="leaving")), wanted)
    assert urgent(None, wanted)
    assert urgent("{", wanted)
