"""Volumes as the drivers that attach them see them, volumes of kinds that moved to a driver included.

Older kinds of volumes are attached by a driver on nodes whose CSINode says that the kind was migrated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from api.kube.objects import Pod
from api.kube.storage import CsiNode, PersistentVolume
from cluster.resources import Key
from scheduler.matching.volumes import VolumeView

MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: kinds of volumes that a driver attaches there, by comma."""
AMAZON = "kubernetes.io/aws-ebs"
DRIVERS_OF_KINDS = {
    AMAZON: "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume as its driver sees it; claims without a volume yet count by their name."""

    driver: str
    volume: str
    kind: str = ""
    """The kind that must be migrated on the node for the driver to attach it; empty for the driver's own volumes."""


def attachments_of(keys: Iterable[Key], view: VolumeView) -> frozenset[Attachment]:
    """The volumes of claims; a claim without a volume counts by its class."""
    found: set[Attachment] = set()
    for key in keys:
        claim = view.claims.get(key)
        if claim is None:
            continue
        volume = view.volumes.get(Key("", claim.spec.volume_name))
        attachment = _of_volume(volume) if volume is not None else None
        if volume is None and (chosen := view.class_of(claim)) is not None:
            kind = chosen.provisioner if chosen.provisioner in DRIVERS_OF_KINDS else ""
            attachment = Attachment(DRIVERS_OF_KINDS.get(kind, chosen.provisioner), str(key), kind)
        if attachment is not None:
            found.add(attachment)
    return frozenset(found)


def inline_attachments(pod: Pod) -> frozenset[Attachment]:
    """Volumes of migrated kinds that the pod names itself."""
    found = (_of_source(volume) for volume in pod.spec.volumes)
    return frozenset(attachment for attachment in found if attachment is not None)


def migrated_kinds(node: CsiNode | None) -> frozenset[str]:
    """Kinds of volumes that drivers attach on a node."""
    stated = node.metadata.annotations.get(MIGRATED, "") if node is not None else ""
    return frozenset(part.strip() for part in stated.split(",") if part.strip())


def _of_volume(volume: PersistentVolume) -> Attachment | None:
    spec = volume.spec
    return Attachment(spec.csi.driver, spec.csi.volume_handle) if spec.csi is not None else _of_source(spec)


def _of_source(source: Any) -> Attachment | None:
    """The volume of a migrated kind that a pod or a persistent volume names."""
    for kind, stated, name in (
        (AMAZON, source.aws_elastic_block_store, "volumeID"),
        ("kubernetes.io/azure-disk", source.azure_disk, "diskURI"),
        ("kubernetes.io/cinder", source.cinder, "volumeID"),
        ("kubernetes.io/gce-pd", source.gce_persistent_disk, "pdName"),
    ):
        if stated is not None:
            volume = str(stated.get(name))
            if kind == AMAZON:
                volume = volume.rpartition("/")[2]  # It may be written with its zone before it.
            return Attachment(DRIVERS_OF_KINDS[kind], volume, kind)
    return None
