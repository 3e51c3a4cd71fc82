"""Changes of claims: devices and consumers in, consumers and devices out, each for the claim as it was looked at."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from api.kube.claims import ResourceClaim
from cluster.resources import RESOURCE_CLAIMS, Key, merge_patch, strategic_patch
from scheduler.claims.allocation import Given, allocation_document
from scheduler.claims.demand import ClaimDemand
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Verb, Write

CLAIMS = RESOURCE_CLAIMS.of(ResourceClaim)
FINALIZER = "resource.kubernetes.io/delete-protection"
MAX_CONSUMERS = 256
"""Consumers of a claim; the API server takes no more."""


def reserved(
    claim: ResourceClaim,
    key: Key,
    consumers: Sequence[PodInfo],
    allocation: tuple[ClaimDemand, Given] | None,
    now: float,
) -> Iterable[Write]:
    """Write the consumers into the claim, and its devices where it gets them.

    The finalizer comes first: a claim with devices and without it could be deleted while they are in use. It is added
    to those that the claim has; a claim that changed since it was looked at refuses it, by its version. What follows
    holds for the claim as that left it.
    """
    status: dict[str, object] = {}
    if allocation is not None:
        status["allocation"] = allocation_document(*allocation, now)
    known = {each.uid for each in claim.status.reserved_for}
    added = [
        {"resource": "pods", "name": info.pod.metadata.name, "uid": info.uid}
        for info in consumers
        if info.uid not in known
    ]
    if added:
        status["reservedFor"] = [*_consumers(claim), *added]
    protected = FINALIZER in claim.metadata.finalizers
    if not protected:
        meta = {**as_seen(claim), "finalizers": [FINALIZER]}
        yield Write(Verb.PATCH, CLAIMS, key, strategic_patch({"metadata": meta}), repeat=False)
    if status:
        body = {"metadata": as_seen(claim), "status": status}
        yield Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False, continues=not protected)


def without(claim: ResourceClaim, key: Key, uids: Collection[str]) -> Write:
    """Take consumers out of the claim."""
    left = [each for each in _consumers(claim) if each["uid"] not in uids]
    body: Mapping[str, Any] = {"metadata": as_seen(claim), "status": {"reservedFor": left or None}}
    return Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False)


def emptied(claim: ResourceClaim, key: Key) -> Write:
    """Take the devices from the claim."""
    body = {"metadata": as_seen(claim), "status": {"allocation": None, "reservedFor": None}}
    return Write(Verb.PATCH_STATUS, CLAIMS, key, merge_patch(body), repeat=False)


def idle(claim: ResourceClaim, uid: str) -> bool:
    """Return whether no other pod may use the claim."""
    return all(each.uid == uid for each in claim.status.reserved_for)


def as_seen(claim: ResourceClaim) -> dict[str, str]:
    """Metadata by which a change holds only for the claim as it was looked at."""
    meta = claim.metadata
    seen = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {name: value for name, value in seen.items() if value}


def _consumers(claim: ResourceClaim) -> list[dict[str, str]]:
    return [
        {
            **({"apiGroup": each.api_group} if each.api_group else {}),
            "resource": each.resource,
            "name": each.name,
            "uid": each.uid,
        }
        for each in claim.status.reserved_for
    ]
