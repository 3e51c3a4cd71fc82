"""Root quotas of ElasticQuotaProfiles: the resources of the selected nodes as the total of a quota tree."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from api.crds import ElasticQuota, ElasticQuotaProfile
from api.kube.resources import CPU, MEMORY, QuantityError, Resources, format_resources, parse_resources, total
from api.kube.selectors import label_selector_matches
from api.protocol import BATCH_CPU, BATCH_MEMORY, LABEL_QUOTA_TREE_ID, MID_CPU, MID_MEMORY
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import ELASTIC_QUOTA, ELASTIC_QUOTA_PROFILE, NODE, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Write, Writes, create, kind_name, patch, reference

PREFIX = "quota.scheduling.koordinator.sh/"
LABEL_PROFILE = PREFIX + "profile"
LABEL_IS_ROOT = PREFIX + "is-root"
ANNOTATION_TOTAL = PREFIX + "total-resource"
ANNOTATION_UNSCHEDULABLE = PREFIX + "unschedulable-resource"
ANNOTATION_KEYS = PREFIX + "resource-keys"
UNBOUNDED = (2**63 - 1) // 2000
"""Maximum of a root quota: more than any cluster has, and times 1000 still a 64-bit number."""
MOVING = frozenset({BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY})
"""Resources that change by the minute: stated only where the quota counts them."""
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class QuotaProfiles(Controller[ControllerSettings]):
    """Creates and updates root quotas."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (ELASTIC_QUOTA_PROFILE, ELASTIC_QUOTA, NODE)
    period_seconds: ClassVar[float] = 60.0

    def plan(self, view: View, now: float) -> Writes:
        """Return tree ids that profiles lack, and root quotas that are missing or differ."""
        profiles = view.objects(ELASTIC_QUOTA_PROFILE)
        if not profiles:
            return Writes()
        quotas, nodes = view.objects(ELASTIC_QUOTA), view.objects(NODE)
        writes: list[Write] = []
        warnings: list[Event] = []
        for key, profile in sorted(profiles.items()):
            tree = profile.metadata.labels.get(LABEL_QUOTA_TREE_ID)
            if not tree:
                tree = tree_id(key)
                body = {"metadata": {"labels": {LABEL_QUOTA_TREE_ID: tree}}}
                writes.append(patch(ELASTIC_QUOTA_PROFILE, profile, body, "the profile has no tree id"))
            quota = quotas.get(Key(key.namespace, profile.spec.quota_name))
            if quota is not None and quota.metadata.labels.get(LABEL_PROFILE, key.name) != key.name:
                other = quota.metadata.labels[LABEL_PROFILE]
                note = f"quota {profile.spec.quota_name} belongs to profile {other}; choose another quotaName"
                warnings.append(
                    Event(reference(ELASTIC_QUOTA_PROFILE, profile), "QuotaTaken", note, "SyncQuota", "Warning")
                )
                continue
            wanted = wanted_quota(profile, key, tree, nodes.values(), quota)
            writes += _kept(wanted, quota)
        return Writes(writes, warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the nodes that a profile selects and the total that it gives them."""
        profile = view.objects(ELASTIC_QUOTA_PROFILE).get(key)
        if kind != kind_name(ELASTIC_QUOTA_PROFILE) or profile is None:
            return ()
        chosen = selected(profile, view.objects(NODE).values())
        names = ", ".join(sorted(node.name for node in chosen)[:10])
        amounts = format_resources(scaled(total(map(_allocatable, chosen)), ratio_of(profile)))
        return [
            f"{len(chosen)} nodes selected: {names}{' and more' if len(chosen) > 10 else ''}",
            f"total times {ratio_of(profile)}: {msgspec.json.encode(amounts).decode()}",
        ]


def tree_id(key: Key) -> str:
    """Return the tree id of a profile that has none: FNV-1a of `namespace/name`, decimal."""
    return str(fnv1a(f"{key.namespace}/{key.name}".encode()))


def fnv1a(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    value = FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * FNV_PRIME) % (1 << 64)
    return value


def ratio_of(profile: ElasticQuotaProfile) -> float:
    """Return the share of the nodes' resources that the tree has; 1 for none and for one outside (0, 1]."""
    try:
        ratio = float(profile.spec.resource_ratio or 1.0)
    except ValueError:
        return 1.0
    return ratio if 0.0 < ratio <= 1.0 else 1.0


def scaled(resources: Resources, ratio: float) -> Resources:
    """Return resources times a ratio, cut to whole units."""
    return {name: int(amount * ratio) for name, amount in resources.items()}


def selected(profile: ElasticQuotaProfile, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes of a profile."""
    return [node for node in nodes if label_selector_matches(profile.spec.node_selector, node.metadata.labels)]


def wanted_quota(
    profile: ElasticQuotaProfile, key: Key, tree: str, nodes: Iterable[Node], quota: ElasticQuota | None
) -> dict[str, Any]:
    """Return the root quota of a profile; what others wrote into `quota` decides which resources it counts."""
    chosen, ratio = selected(profile, nodes), ratio_of(profile)
    keys = _keys(quota)
    everything = scaled(total(map(_allocatable, chosen)), ratio)
    out_of_use = scaled(total(_allocatable(node) for node in chosen if _unschedulable(node)), ratio)

    def stated(amounts: Resources) -> str:
        named = {name: amount for name, amount in sorted(amounts.items()) if name not in MOVING or name in keys}
        return msgspec.json.encode(format_resources(named)).decode()

    labels = {**profile.spec.quota_labels, LABEL_PROFILE: key.name, LABEL_QUOTA_TREE_ID: tree, LABEL_IS_ROOT: "true"}
    return {
        "metadata": {
            "name": profile.spec.quota_name,
            "namespace": key.namespace,
            "labels": labels,
            "annotations": {ANNOTATION_TOTAL: stated(everything), ANNOTATION_UNSCHEDULABLE: stated(out_of_use)},
        },
        "spec": {
            "min": format_resources({name: everything.get(name, 0) for name in keys}),
            "max": {name: str(UNBOUNDED) for name in keys},
        },
    }


def _kept(wanted: dict[str, Any], quota: ElasticQuota | None) -> list[Write]:
    if quota is None:
        return [create(ELASTIC_QUOTA, wanted, "the profile has no root quota")]
    body: dict[str, Any] = {}
    for part, have in (("labels", quota.metadata.labels), ("annotations", quota.metadata.annotations)):
        changed = {name: text for name, text in wanted["metadata"][part].items() if have.get(name) != text}
        if changed:
            body.setdefault("metadata", {})[part] = changed
    for part, amounts in (("min", quota.spec.min), ("max", quota.spec.max)):
        changed = {
            name: text for name, text in wanted["spec"][part].items() if not _equal(name, amounts.get(name), text)
        }
        changed |= dict.fromkeys(amounts.keys() - wanted["spec"][part].keys())
        if changed:
            body.setdefault("spec", {})[part] = changed
    return [patch(ELASTIC_QUOTA, quota, body, "the selected nodes or the profile changed")] if body else []


def _keys(quota: ElasticQuota | None) -> list[str]:
    text = quota.metadata.annotations.get(ANNOTATION_KEYS) if quota else None
    try:
        named = msgspec.json.decode(text or "[]", type=list[str])
    except (msgspec.DecodeError, RecursionError):
        named = []
    return named or [CPU, MEMORY]


def _allocatable(node: Node) -> Resources:
    found: Resources = {}
    for name, text in node.status.allocatable.items():
        try:
            found |= parse_resources({name: text})
        except QuantityError:
            continue
    return found


def _unschedulable(node: Node) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return node.spec.unschedulable or not ready


def _equal(name: str, have: Any, want: str) -> bool:
    try:
        return have is not None and parse_resources({name: have}) == parse_resources({name: want})
    except QuantityError:
        return False
