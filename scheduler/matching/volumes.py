"""Matching of volumes with claims, and of nodes with volumes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.kube.meta import LabelSelectorRequirement as Requirement
from api.kube.objects import Pod
from api.kube.selectors import label_selector_matches, node_term_matches, requirement_matches
from api.kube.storage import (
    Claim,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    StorageClass,
    VolumeAttachment,
)
from cluster.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Key,
)

SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
ZONE_LABELS = {
    "topology.kubernetes.io/zone": "",
    "topology.kubernetes.io/region": "",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of zones and regions, the older ones with the label that a node may have instead."""

CLAIMS = PERSISTENT_VOLUME_CLAIMS.of(Claim)
VOLUMES = PERSISTENT_VOLUMES.of(PersistentVolume)
ATTACHMENTS = VOLUME_ATTACHMENTS.of(VolumeAttachment)
CLASSES = STORAGE_CLASSES.of(StorageClass)
NODE_DRIVERS = CSI_NODES.of(CsiNode)
DRIVERS = CSI_DRIVERS.of(CsiDriver)
CAPACITIES = CSI_STORAGE_CAPACITIES.of(CsiStorageCapacity)


@dataclass(frozen=True, slots=True)
class VolumeView:
    """Claims, volumes and storage classes as last watched."""

    claims: Mapping[Key, Claim]
    volumes: Mapping[Key, PersistentVolume]
    classes: Mapping[Key, StorageClass]

    def class_of(self, claim: Claim) -> StorageClass | None:
        """The claim's storage class."""
        return self.classes.get(Key("", claim.class_name))

    def waits_for_consumer(self, claim: Claim) -> bool:
        """Return whether the claim is bound only once a pod needs it."""
        chosen = self.class_of(claim)
        return chosen is not None and chosen.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def claim_keys(pod: Pod) -> list[Key]:
    """The claims that a pod mounts; generic ephemeral volumes claim `<pod>-<volume>`."""
    keys: list[Key] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            keys.append(Key(pod.metadata.namespace, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            keys.append(Key(pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"))
    return keys


def ephemeral_claims(pod: Pod) -> list[Key]:
    """The claims that were made for this pod alone."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    return [Key(namespace, f"{name}-{volume.name}") for volume in pod.spec.volumes if volume.ephemeral is not None]


def reaches(volume: PersistentVolume, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node with these labels can use the volume."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(node_term_matches(term, labels, name) for term in affinity.required.node_selector_terms)


def allowed(chosen: StorageClass, labels: Mapping[str, str]) -> bool:
    """Return whether a volume of the class may be made for a node with these labels."""
    if not chosen.allowed_topologies:
        return True
    return any(
        all(
            requirement_matches(Requirement(key=item.key, operator="In", values=item.values), labels.get(item.key))
            for item in term.match_label_expressions
        )
        for term in chosen.allowed_topologies
    )


def zone_allows(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    """Return whether the volume's own zone and region labels, as older volumes have them, agree with the node's.

    Several zones stand in one label, joined by two underscores. A node without any such label is not looked at.
    """
    own = {key: value for key, value in volume.metadata.labels.items() if key in ZONE_LABELS}
    if not own or not any(key in labels for key in ZONE_LABELS):
        return True
    return all(_zone_of(key, labels) in value.split("__") for key, value in own.items())


def _zone_of(key: str, labels: Mapping[str, str]) -> str:
    return labels.get(key) or labels.get(ZONE_LABELS[key], "")


def owned_by(volume: PersistentVolume, claim: Claim) -> bool:
    """Return whether the volume is set aside for the claim: by name before the claim was known, else by its UID too."""
    owner, meta = volume.spec.claim_ref, claim.metadata
    return (
        owner is not None
        and (owner.namespace, owner.name) == (meta.namespace, meta.name)
        and owner.uid in ("", meta.uid)
    )


def suits(volume: PersistentVolume, claim: Claim) -> bool:
    """Return whether a volume could serve a claim: free or set aside for it, of its class, mode, labels and size."""
    spec = volume.spec
    mine = owned_by(volume, claim)
    selector = claim.spec.selector
    return (
        (mine or (spec.claim_ref is None and volume.status.phase in ("", "Available")))
        and not volume.metadata.deletion_timestamp
        and spec.storage_class_name == claim.class_name
        and spec.volume_mode == claim.spec.volume_mode
        and (spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and set(claim.spec.access_modes) <= set(spec.access_modes)
        and volume.bytes >= claim.bytes
        and (mine or selector is None or label_selector_matches(selector, volume.metadata.labels))
    )


def smallest_volumes(
    claims: Iterable[Claim], volumes: Iterable[PersistentVolume], labels: Mapping[str, str], name: str
) -> tuple[dict[Key, PersistentVolume], list[Claim]]:
    """For each claim the smallest free volume that the node reaches, each used once; and the claims left over.

    Volumes set aside for a claim come first. Larger claims choose last, so that they do not take what smaller ones
    could have shared.
    """
    reachable = sorted((item for item in volumes if reaches(item, labels, name)), key=lambda item: item.bytes)
    chosen: dict[Key, PersistentVolume] = {}
    left: list[Claim] = []
    for claim in sorted(claims, key=lambda item: item.bytes):
        fits = [item for item in reachable if suits(item, claim)]
        fit = next((item for item in fits if owned_by(item, claim)), fits[0] if fits else None)
        if fit is None:
            left.append(claim)
        else:
            reachable.remove(fit)
            chosen[Key(claim.metadata.namespace, claim.metadata.name)] = fit
    return chosen, left
