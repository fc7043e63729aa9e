"""Which GPUs a pod of this node gets, and which annotation is correct."""

import msgspec
import pytest

from deviceplugin import adopt
from deviceplugin.adopt import Claim, decide
from deviceplugin.record import Record
from protos.contract import allocation, names
from protos.contract.ask import AskError
from protos.contract.inventory import Inventory
from protos.contract.objects import Pod
from tests.unit.deviceplugin.builders import a_container, a_pod, an_allocation, an_inventory, placed

RESOURCES = names.Resources()


def claim(pod: Pod, **given: tuple[str, ...]) -> Claim:
    found = adopt.claim_of(pod, RESOURCES, given)
    assert found is not None
    return found


def gpus(decision: adopt.Decision) -> dict[str, list[int]]:
    return {name: [share.index for share in shares] for name, shares in decision.shares.items()}


def test_the_annotation_decides() -> None:
    decision = decide(claim(a_pod("p", annotations=placed(main=(2,)))), [], an_inventory())
    assert decision.how == "annotated"
    assert gpus(decision) == {"main": [2]}
    assert decision.shares["main"][0].mem == 4, "amounts come from the limits"


def test_a_pod_without_annotation_is_adopted_where_it_packs() -> None:
    other = claim(a_pod("o", annotations=placed(main=(1,))), main=("GPU-1",))
    decision = decide(claim(a_pod("p")), [other], an_inventory())
    assert (decision.how, gpus(decision), decision.why) == ("adopted", {"main": [1]}, "no extender placed it")


def test_a_container_is_adopted_on_gpus_of_one_model_unless_its_pod_allows_several() -> None:
    pair, mix = {names.GPU_COUNT: "2"}, {names.MIXED_MODELS: "allow"}
    inventory = an_inventory(16, 40, 40)
    first, *others = inventory.gpus
    inventory = msgspec.structs.replace(inventory, gpus=(msgspec.structs.replace(first, model="other"), *others))
    assert gpus(decide(claim(a_pod("p", annotations=pair)), [], inventory)) == {"main": [1, 2]}
    other = claim(a_pod("o", a_container(mem=40)), main=("GPU-1",))
    assert decide(claim(a_pod("p", annotations=pair)), [other], inventory).refusal is not None
    assert gpus(decide(claim(a_pod("p", annotations=pair | mix)), [other], inventory)) == {"main": [0, 2]}


def test_a_pod_is_adopted_beside_pods_without_an_answer() -> None:
    other = claim(a_pod("o", a_container(mem=16), annotations=placed(main=(0,))))
    assert gpus(decide(claim(a_pod("p")), [other], an_inventory(16, 16))) == {"main": [1]}


def test_an_annotation_on_a_full_gpu_is_not_followed() -> None:
    other = claim(a_pod("o", a_container(mem=14)), main=("GPU-0",))
    decision = decide(claim(a_pod("p", annotations=placed(main=(0,)))), [other], an_inventory(16, 16))
    assert (decision.how, gpus(decision)) == ("moved", {"main": [1]})
    assert decision.why == "GPU 0 has 2 GiB and 100 slices free"


def test_a_pod_with_a_class_gets_the_planned_gpus_or_none_since_only_the_extender_knows_classes() -> None:
    named = {names.GPU_CLASS: "large"}
    planned = claim(a_pod("p", annotations=named | placed(main=(0,))))
    assert gpus(decide(planned, [], an_inventory(16, 16))) == {"main": [0]}
    other = claim(a_pod("o", a_container(mem=14)), main=("GPU-0",))
    for pod, others in ((planned, [other]), (claim(a_pod("q", annotations=named)), [])):
        refused = decide(pod, others, an_inventory(16, 16)).refusal
        assert refused is not None
        assert refused.sentence == "only gangshare's scheduler knows which GPUs are of class large"


def test_an_annotation_on_a_gpu_held_whole_is_not_followed() -> None:
    other = claim(a_pod("o", a_container(whole=1)), main=("GPU-0",))
    decision = decide(claim(a_pod("p", annotations=placed(main=(0,)))), [other], an_inventory(16, 16))
    assert (gpus(decision), decision.why) == ({"main": [1]}, "GPU 0 is held whole")


def test_a_shared_gpu_is_never_given_as_a_whole_gpu() -> None:
    other = claim(a_pod("o"), main=("GPU-0",))
    decision = decide(
        claim(a_pod("p", a_container(whole=1), annotations=placed(main=(0,)))), [other], an_inventory(16, 16)
    )
    assert gpus(decision) == {"main": [1]}


@pytest.mark.parametrize("health", ["sick:xid-79", "gone"])
def test_an_annotation_on_a_gpu_that_is_not_well_is_not_followed(health: str) -> None:
    inventory = an_inventory(16, 16, health={"GPU-0": health})
    decision = decide(claim(a_pod("p", annotations=placed(main=(0,)))), [], inventory)
    assert (gpus(decision), decision.why) == ({"main": [1]}, f"GPU 0 is {health}")


def test_an_annotation_on_a_cordoned_gpu_is_followed_since_it_was_bound_before() -> None:
    decision = decide(claim(a_pod("p", annotations=placed(main=(0,)))), [], an_inventory(16, 16), {"0"})
    assert gpus(decision) == {"main": [0]}


def test_nothing_is_adopted_onto_a_cordoned_gpu() -> None:
    assert gpus(decide(claim(a_pod("p")), [], an_inventory(16, 16), {"0"})) == {"main": [1]}


def test_no_room_is_a_sentence_with_numbers() -> None:
    other = claim(a_pod("o", a_container(mem=14)), main=("GPU-0",))
    decision = decide(claim(a_pod("p")), [other], an_inventory(16))
    assert decision.refusal is not None
    assert str(decision.refusal) == "no GPU of this node has enough free for 4 GiB on one GPU: freest: GPU 0 with 2 GiB"


def test_an_annotation_that_claims_more_gpus_than_asked_is_not_followed() -> None:
    decision = decide(claim(a_pod("p", annotations=placed(main=(0, 1, 2)))), [], an_inventory())
    assert decision.how == "moved"
    assert len(decision.shares["main"]) == 1


@pytest.mark.parametrize("text", ["nonsense", '{"v":9}'])
def test_an_annotation_that_cannot_be_read_is_as_none_and_says_why(text: str) -> None:
    decision = decide(claim(a_pod("p", annotations={names.ALLOCATION: text})), [], an_inventory())
    assert decision.how == "adopted"
    assert names.ALLOCATION in decision.why


def test_of_two_pods_with_one_gpu_the_first_in_allocate_keeps_it() -> None:
    first = claim(a_pod("a", a_container(mem=10), annotations=placed(main=(0,))))
    second = claim(a_pod("b", a_container(mem=10), annotations=placed(main=(0,))))
    assert gpus(decide(second, [first], an_inventory(16, 16))) == {"main": [0]}
    answered = claim(a_pod("b", a_container(mem=10), annotations=placed(main=(0,))), main=("GPU-0",))
    assert gpus(decide(first, [answered], an_inventory(16, 16))) == {"main": [1]}


def test_a_running_pod_on_unknown_gpus_is_charged_everywhere() -> None:
    running = claim(a_pod("o", a_container(mem=14), running=("main",)))
    assert decide(claim(a_pod("p")), [running], an_inventory(16, 16)).refusal is not None


def test_a_pod_without_answer_and_annotation_holds_nothing() -> None:
    waiting = claim(a_pod("o", a_container(mem=14)))
    assert decide(claim(a_pod("p")), [waiting], an_inventory(16, 16)).refusal is None


def test_several_containers_are_placed_at_once() -> None:
    pod = a_pod("p", a_container("a", mem=10), a_container("b", mem=10), init=(a_container("i", mem=12),))
    found = gpus(decide(claim(pod), [], an_inventory(16, 16)))
    assert sorted(found["a"] + found["b"]) == [0, 1]
    assert found["i"] in (found["a"], found["b"])


def test_the_blockers_of_a_pod_are_on_its_gpus_or_on_unknown_gpus() -> None:
    mine = claim(a_pod("p", annotations=placed(main=(0,))))
    others = [
        claim(a_pod("a"), main=("GPU-0",)),
        claim(a_pod("b"), main=("GPU-1",)),
        claim(a_pod("c")),
    ]
    assert adopt.blockers(mine, others) == {"uid-a", "uid-c"}


def test_a_pod_that_has_ended_claims_nothing() -> None:
    assert adopt.claim_of(a_pod("p", phase="Succeeded"), RESOURCES, {}) is None


def test_an_ask_that_makes_no_sense_is_an_error_for_itself_and_nothing_for_others() -> None:
    bad = a_pod("p", a_container(mem=1, whole=1))
    with pytest.raises(AskError, match="whole GPUs or parts"):
        adopt.claim_of(bad, RESOURCES, {})
    assert adopt.claims([bad, a_pod("q")], RESOURCES, Record()) == [claim(a_pod("q"))]


class TestCorrected:
    inventory: Inventory = an_inventory()

    def test_nothing_to_correct_while_nothing_was_answered(self) -> None:
        assert adopt.corrected(claim(a_pod("p")), self.inventory) is None

    def test_nothing_to_correct_where_the_annotation_names_the_gpus(self) -> None:
        pod = a_pod("p", annotations=placed(main=(1,)))
        assert adopt.corrected(claim(pod, main=("GPU-1",)), self.inventory) is None

    def test_another_gpu_is_corrected_with_the_amounts_asked(self) -> None:
        pod = a_pod("p", a_container(mem=4, slices=25), annotations=placed(main=(1,)))
        truth = adopt.corrected(claim(pod, main=("GPU-2",)), self.inventory)
        assert truth is not None
        (share,) = truth.containers["main"]
        assert (share.uuid, share.index, share.mem, share.slices) == ("GPU-2", 2, 4, 25)

    def test_an_unreadable_annotation_is_replaced(self) -> None:
        pod = a_pod("p", annotations={names.ALLOCATION: "nonsense"})
        assert adopt.corrected(claim(pod, main=("GPU-2",)), self.inventory) is not None

    def test_the_gang_that_a_pod_started_with_is_kept(self) -> None:
        group = allocation.Group(key="ns/g", epoch=3, size=2)
        marked = msgspec.structs.replace(an_allocation(main=(1,)), group=group)
        pod = a_pod("p", annotations={names.ALLOCATION: allocation.encode(marked)})
        truth = adopt.corrected(claim(pod, main=("GPU-2",)), self.inventory)
        assert truth is not None
        assert truth.group == group

    def test_a_gpu_that_is_gone_is_still_named(self) -> None:
        truth = adopt.corrected(claim(a_pod("p"), main=("GPU-old",)), self.inventory)
        assert truth is not None
        assert truth.containers["main"][0].uuid == "GPU-old"

    def test_what_the_record_does_not_say_of_a_container_the_annotation_does(self) -> None:
        pod = a_pod("p", a_container("a", mem=4), a_container("b", mem=4), annotations=placed(a=(1,), b=(2,)))
        assert adopt.corrected(claim(pod, a=("GPU-1",)), self.inventory) is None
        truth = adopt.corrected(claim(pod, a=("GPU-3",)), self.inventory)
        assert truth is not None
        assert {name: shares[0].index for name, shares in truth.containers.items()} == {"a": 3, "b": 2}

    def test_half_a_truth_is_not_written(self) -> None:
        pod = a_pod("p", a_container("a", mem=4), a_container("b", mem=4))
        assert adopt.corrected(claim(pod, a=("GPU-1",)), self.inventory) is None


def test_a_pod_that_was_given_gpus_holds_them_even_if_its_request_is_refused_today() -> None:
    counted = a_pod("old", a_container(whole=1), annotations={names.GPU_COUNT: "2"})
    assert adopt.claims([counted], RESOURCES, Record()) == []
    assert claim(counted, main=("GPU-0",)).given == {"main": ("GPU-0",)}
