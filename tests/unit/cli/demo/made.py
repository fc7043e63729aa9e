"""Pods as records, from manifests."""

from typing import Any

import msgspec

from protos.contract.objects import Pod


def as_record(manifest: dict[str, Any]) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(manifest), type=Pod)
