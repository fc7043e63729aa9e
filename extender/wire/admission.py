"""The API server's review of a new pod, and the answer that puts our scheduling gate on the pod.

Source: admission.k8s.io/v1 AdmissionReview; RFC 6902 for the patch.
"""

from __future__ import annotations

import base64

import msgspec

from protos.contract import names
from protos.contract.objects import ObjectMeta, Pod, PodSpec

_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"


class AdmissionError(ValueError):
    """A request body that the API server would not send."""


class _Meta(msgspec.Struct, frozen=True):
    """Metadata of a new pod, which may have no name yet."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _NewPod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: PodSpec


class _Request(msgspec.Struct, frozen=True):
    uid: str
    object: _NewPod


class _Review(msgspec.Struct, frozen=True):
    request: _Request


class Question(msgspec.Struct, frozen=True):
    """One request: its UID, which the answer repeats, and the pod without name and namespace."""

    uid: str
    pod: Pod


_reviews = msgspec.json.Decoder(_Review)


def question(body: bytes) -> Question:
    """The request in an AdmissionReview; raises AdmissionError."""
    try:
        asked = _reviews.decode(body).request
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise AdmissionError(f"no {_KIND} of a new pod: {error}") from error
    meta = asked.object.metadata
    metadata = ObjectMeta(name="", labels=meta.labels or {}, annotations=meta.annotations or {})
    return Question(asked.uid, Pod(metadata, asked.object.spec))


def answer(asked: Question, *, gated: bool) -> bytes:
    """Allow the pod, with our gate on it if `gated`."""
    response: dict[str, object] = {"uid": asked.uid, "allowed": True}
    if gated:
        gate = {"name": names.PLAN_GATE}
        path = "/spec/schedulingGates"
        others = bool(asked.pod.spec.scheduling_gates)
        added = {"op": "add", "path": f"{path}/-" if others else path, "value": gate if others else [gate]}
        patch = base64.b64encode(msgspec.json.encode([added])).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return msgspec.json.encode({"apiVersion": _VERSION, "kind": _KIND, "response": response})
