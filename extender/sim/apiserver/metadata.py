"""Metadata of objects: defaults, preconditions and fields that clients cannot change."""

from __future__ import annotations

import re
import uuid
from random import Random

from extender.sim import podspec
from extender.sim.apiserver import errors
from extender.sim.apiserver.resources import Object, Resource
from extender.sim.apiserver.store import Key

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$")
_NO_NAME = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_FIXED = ("name", "namespace", "uid", "creationTimestamp", *_DELETION, "generation", "generateName")


def new(resource: Resource, namespace: str, given: Object, random: Random) -> Object:
    """The metadata of a new object; its name may come from generateName."""
    if given.get("resourceVersion"):
        raise errors.bad_request("resourceVersion should not be set on objects to be created")
    if given.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    name = given.get("name") or ""
    if not name and given.get("generateName"):
        name = given["generateName"][:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
    if not name:
        raise errors.invalid(resource, "", "metadata.name", "Required value: name or generateName is required")
    if not _NAME.match(name) or len(name) > 253:
        raise errors.invalid(resource, name, "metadata.name", f'Invalid value: "{name}": {_NO_NAME}')
    rest = {k: v for k, v in given.items() if k not in _FIXED and k not in ("managedFields", "selfLink")}
    made = {"uid": str(uuid.uuid4()), "creationTimestamp": podspec.timestamp(), "generation": 1}
    prefix = {"generateName": given["generateName"]} if given.get("generateName") else {}
    place = {"name": name, **prefix, **({"namespace": namespace} if namespace else {})}
    return {**place, **made, **rest}


def check(resource: Resource, key: Key, wanted: Object, present: Object) -> None:
    """Raise ApiError 409 unless the wanted UID and resourceVersion are the present ones."""
    if wanted.get("uid") not in (None, "", present["uid"]):
        path = f"/registry/{resource.plural}/{key[0]}/{key[1]}"
        raise errors.wrong_uid(resource, path, key[1], wanted["uid"], present["uid"])
    if wanted.get("resourceVersion") not in (None, "", present["resourceVersion"]):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise errors.conflict(resource, key[1], why)


def kept(resource: Resource, old: Object, given: Object, subresource: str) -> Object:
    """The metadata after a write through this subresource; fields that clients cannot change stay as in ``old``."""
    if subresource == "status" and resource.custom:
        return dict(old)
    written = {k: v for k, v in given.items() if k not in _FIXED}
    fixed = {k: old[k] for k in _FIXED if k in old}
    if subresource == "status" and "ownerReferences" in old:
        written["ownerReferences"] = old["ownerReferences"]
    server = {"resourceVersion": old["resourceVersion"], "managedFields": old.get("managedFields", [])}
    return {**fixed, **written, **server}
