from protos.contract import bounds


def test_a_value_past_a_bound_is_named_with_what_was_expected() -> None:
    assert bounds.GPUS_PER_NODE.exceeded(4000) == "GPUs of a node: 4000, expected at most 256"


def test_a_huge_value_is_told_in_few_characters() -> None:
    grace = bounds.Bound("grace period", 3600, "s")
    assert grace.exceeded(10**5000) == "grace period: more than 1000000000000 s, expected at most 3600 s"
