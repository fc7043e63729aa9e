"""`kubectl get` shows the demo's queues and classes as it shows those of a cluster."""

from typing import Any

import pytest

from extender.cli.demo import definitions
from tests.unit.docs import crds

MADE = {made["spec"]["names"]["kind"]: made["spec"] for made in crds.definitions()}


@pytest.mark.parametrize("definition", definitions.definitions(), ids=lambda made: made["spec"]["names"]["plural"])
def test_a_definition_has_the_names_and_columns_of_the_manifests(definition: dict[str, Any]) -> None:
    spec = definition["spec"]
    real = MADE[spec["names"]["kind"]]
    assert (spec["group"], spec["scope"]) == (real["group"], real["scope"])
    assert columns(spec) == columns(real)


def columns(spec: dict[str, Any]) -> Any:
    (version,) = spec["versions"]
    return version["additionalPrinterColumns"]
