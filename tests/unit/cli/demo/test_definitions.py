"""`kubectl get` shows the demo's queues and classes as it shows those of a cluster."""

import pytest

from extender.cli.demo import definitions
from tests.unit.docs import crds

MADE = {made["spec"]["names"]["kind"]: made["spec"] for made in crds.definitions()}


@pytest.mark.parametrize("definition", definitions.definitions(), ids=lambda made: made["spec"]["names"]["plural"])
def test_a_definition_has_the_names_and_columns_of_the_manifests(definition: dict[str, dict[str, object]]) -> None:
    spec = definition["spec"]
    real = MADE[spec["names"]["kind"]]  # type: ignore[index]
    assert (spec["group"], spec["scope"]) == (real["group"], real["scope"])
    (ours,), (theirs,) = spec["versions"], real["versions"]  # type: ignore[misc]
    assert ours["additionalPrinterColumns"] == theirs["additionalPrinterColumns"]
