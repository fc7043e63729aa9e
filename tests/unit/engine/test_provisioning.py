"""Which gangs ask an autoscaler for capacity, when, and what becomes of their requests."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.engine.gangs.provisioning import Ask, Orders, said
from extender.engine.types.events import GroupSeen, QueueSeen
from protos.contract import names, provisioning
from protos.contract.bounds import PROVISIONING_OPEN
from protos.contract.provisioning import Request, State
from protos.contract.queue import Queue
from tests.unit.engine.gang_story import KEY, VOLCANO, GangStory, a_declaration, at_wall, members, two_nodes

AFTER_S = 30.0


def look(world: GangStory, *found: Request) -> Orders:
    return world.engine.provisioning.look(found, world.now)


def a_request(attempt: int = 1, state: State = "", group: str = "g", changed: str | None = None) -> Request:
    called = provisioning.name("default", group, attempt)
    more: dict[str, Any] = {"state": state, "changed": changed}
    return Request(namespace="default", name=called, uid=f"uid-{called}", group=group, attempt=attempt, **more)


def short_of_room(**settings: Any) -> GangStory:
    """Five members, and four GPUs; the gang has lacked capacity since its plan failed."""
    world = two_nodes(**settings)
    world.create(*members(5, mem=16))
    assert look(world).asks == []
    return world


def ask_of(orders: Orders) -> Ask:
    (ask,) = orders.asks
    return ask


def test_a_gang_that_lacks_capacity_for_a_while_asks_once_for_all_its_members() -> None:
    world = short_of_room()
    world.later(AFTER_S - 1)
    assert look(world).asks == []
    world.later(1)
    ask = ask_of(look(world))
    assert (ask.request.name, ask.request.group) == (provisioning.name("default", "g", 1), "g")
    assert [count for _, count in ask.pod_sets] == [5]
    orders = look(world, a_request())
    assert orders.asks == []
    assert sorted(pod.name for _, pod in orders.consumers) == ["m0", "m1", "m2", "m3", "m4"]


def test_members_name_the_request_before_there_is_one_and_after_it_failed() -> None:
    """Else an autoscaler would add nodes for them one by one meanwhile."""
    world = two_nodes()
    world.create(*members(5, mem=16))
    first = provisioning.name("default", "g", 1)
    assert [(request.name, pod.name) for request, pod in look(world).consumers] == [(first, f"m{i}") for i in range(5)]
    failed = a_request(state="Failed", changed=at_wall(world.now))
    assert [request.name for request, _ in look(world, failed).consumers] == [first] * 5


def test_members_of_a_gang_that_does_not_ask_name_no_request() -> None:
    """An autoscaler adds nodes for them one by one."""
    world = two_nodes()
    kinds = provisioning.POD_SETS + 1
    for number in range(kinds):
        world.create(*members(1, least=kinds, prefix=f"k{number}-", mem=number + 1))
    assert world.why() == "GangCannotFit"
    assert look(world) == Orders()


def test_a_gang_that_fits_on_no_present_node_asks_too() -> None:
    world = two_nodes()
    world.create(*members(2, mem=80))
    assert world.why() == "GangCannotFit"
    look(world)
    world.later(AFTER_S)
    assert [count for _, count in ask_of(look(world)).pod_sets] == [2]


def test_after_a_restart_nothing_is_asked_again() -> None:
    world = short_of_room()
    world.restart()
    look(world, a_request(state="Accepted"))
    world.later(10 * AFTER_S)
    assert look(world, a_request(state="Accepted")).asks == []


def test_a_gang_that_lacks_a_member_does_not_ask() -> None:
    world = two_nodes()
    world.create(*members(5, least=6, mem=16))
    look(world)
    world.later(10 * AFTER_S)
    assert look(world) == Orders()


def test_a_gang_that_its_queue_does_not_admit_does_not_ask_and_its_request_goes() -> None:
    world = two_nodes()
    closed = Queue(name="small", source=VOLCANO, capability={names.WHOLE_GPU: 0}, closed=True)
    world.tell(QueueSeen(closed))
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=5, queue="small")))
    world.create(*members(5, least=None, mem=16))
    assert world.why().startswith("Queue")
    look(world)
    world.later(10 * AFTER_S)
    assert look(world, a_request()) == Orders(over=[a_request()])


def test_a_failed_request_is_followed_by_another_after_a_pause_that_grows() -> None:
    world = short_of_room()
    failed = a_request(state="Failed", changed=at_wall(world.now))
    world.later(59)
    assert look(world, failed).asks == []
    world.later(2)
    second = ask_of(look(world, failed))
    assert (second.request.attempt, second.before) == (2, failed)
    again = a_request(attempt=2, state="BookingExpired", changed=at_wall(world.now))
    world.later(119)
    assert look(world, again).asks == []
    world.later(2)
    assert ask_of(look(world, again)).request.attempt == 3


def test_the_request_of_a_gang_that_runs_or_is_gone_is_over() -> None:
    world = two_nodes()
    world.create(*members(4, mem=16))
    assert look(world, a_request()).over == [], "it may be back in a moment"
    world.come("m0", "m1", "m2", "m3")
    world.land()
    assert look(world, a_request()).over == [a_request()]
    assert look(world, a_request(group="other")).over == [a_request(group="other")]


def test_a_podgroup_that_has_lost_its_members_keeps_no_request() -> None:
    world = two_nodes()
    world.tell(GroupSeen(VOLCANO, KEY, a_declaration(min_member=5)))
    world.create(*members(5, least=None, mem=16))
    assert look(world, a_request()).over == []
    world.delete("m0")
    assert look(world, a_request()).over == [], "it may be back in a moment"
    world.delete("m1", "m2", "m3", "m4")
    assert look(world, a_request()).over == [a_request()]


def test_of_two_attempts_the_earlier_is_over() -> None:
    world = short_of_room()
    assert look(world, a_request(1), a_request(2)).over == [a_request(1)]


def test_a_replica_that_does_not_lead_does_nothing() -> None:
    world = short_of_room()
    world.later(AFTER_S)
    world.engine.gangs.roster.leading = False
    assert look(world, a_request(group="other")) == Orders()


def test_no_more_requests_are_open_than_the_bound() -> None:
    world = short_of_room()
    world.later(AFTER_S)
    others = []
    for number in range(PROVISIONING_OPEN.most):
        world.create(*members(5, gang=f"o{number}", prefix=f"o{number}-", mem=16))
        others.append(a_request(group=f"o{number}"))
    assert look(world, *others).asks == []
    spent = msgspec.structs.replace(others[0], state="Failed", changed=at_wall(world.now))
    assert ask_of(look(world, spent, *others[1:])).request.group == "g"


def test_a_gang_of_more_pods_than_may_start_together_does_not_ask() -> None:
    world = two_nodes(max_gang_size=5)
    world.create(*members(6, least=5, mem=16))
    world.create(*members(6, gang="big", least=6, prefix="b", mem=16))
    look(world)
    world.later(AFTER_S)
    assert [ask.request.group for ask in look(world).asks] == ["g"]


def test_members_that_differ_are_pod_sets_of_their_own() -> None:
    world = two_nodes()
    world.create(*members(3, least=5, mem=16), *members(2, least=5, prefix="w", mem=80))
    look(world)
    world.later(AFTER_S)
    assert sorted(count for _, count in ask_of(look(world)).pod_sets) == [2, 3]


def test_the_state_of_a_request_is_told() -> None:
    world = short_of_room()
    look(world, a_request(state="Accepted"))
    assert world.engine.provisioning.told(KEY).endswith("an autoscaler looks for capacity")
    assert said(a_request()).sentence.endswith("no autoscaler has taken it yet")
