"""The view that rules get, kept up to date by informers; rare questions go to the API server."""

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from api.crds import (
    CLUSTER_COLOCATION_PROFILE,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    ClusterColocationProfile,
    ElasticQuota,
    ElasticQuotaProfile,
)
from api.kube.meta import ObjectMeta, Wire
from api.protocol import LABEL_QUOTA_NAME
from cluster import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Client, Informer, Key, Query, StoreDelta, custom
from controllers.webhooks.access import BindingRights
from controllers.webhooks.rules.quota_object import Quota, QuotaError, parsed
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.view import ClusterView, PriorityClass

log = logging.getLogger(__name__)


class Labelled(Wire, frozen=True):
    """An object of which labels are read."""

    metadata: ObjectMeta = ObjectMeta()


class WatchedCluster:
    """Informers of profiles, priority classes, namespaces and quotas, and views made of them."""

    def __init__(self, client: Client, settings: WebhookSettings, *, random: Random | None = None) -> None:
        self._client = client
        self._settings = settings
        self._random = random or Random()
        self._rights = BindingRights(client)
        self._profiles: Sequence[ClusterColocationProfile] = ()
        self._priority_classes: Mapping[str, PriorityClass] = {}
        self._quotas: Mapping[str, Quota] = {}
        self._quota_profiles: Sequence[ElasticQuotaProfile] = ()
        self._namespaces = Informer(client, NAMESPACES.of(Labelled))
        self._of_profiles = Informer(client, custom(CLUSTER_COLOCATION_PROFILE))
        self._of_classes = Informer(client, PRIORITY_CLASSES.of(PriorityClass))
        self._of_quotas = Informer(client, custom(ELASTIC_QUOTA))
        self._informers: list[Informer[Any]] = [self._namespaces, self._of_profiles, self._of_classes, self._of_quotas]
        self._of_profiles.subscribe(self._profiles_changed)
        self._of_classes.subscribe(self._classes_changed)
        self._of_quotas.subscribe(self._quotas_changed)
        if settings.multi_quota_tree:
            self._of_trees = Informer(client, custom(ELASTIC_QUOTA_PROFILE))
            self._of_trees.subscribe(self._trees_changed)
            self._informers.append(self._of_trees)

    def start(self) -> None:
        """Begin to watch."""
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        """End the watches."""
        for informer in self._informers:
            informer.stop()

    @property
    def ready(self) -> bool:
        """True once all first lists are in."""
        return all(informer.wait_synced(0) for informer in self._informers)

    def view(self) -> ClusterView:
        """Return the cluster as known at this moment, with a random number of its own."""
        return ClusterView(
            profiles=self._profiles,
            priority_classes=self._priority_classes,
            quotas=self._quotas,
            quota_profiles=self._quota_profiles,
            namespace_labels=self._namespace_labels,
            node_labels=self._node_labels,
            quota_has_pods=self._quota_has_pods,
            may_bind=self._rights,
            restricted_classes=frozenset(self._settings.restricted_classes),
            multi_quota_tree=self._settings.multi_quota_tree,
            quota_admission=self._settings.quota_admission,
            validate_devices=self._settings.validate_devices,
            draw=self._random.getrandbits(32),
        )

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        if not name:
            return {}
        # A pod may come right after its namespace, before the watch tells of it.
        found = self._namespaces.get(Key("", name)) or self._client.find(NAMESPACES.of(Labelled), Key("", name))
        return {} if found is None else found.metadata.labels

    def _node_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {node.metadata.name: node.metadata.labels for node in self._client.list(NODES.of(Labelled)).values}

    def _quota_has_pods(self, quota: str, namespaces: Sequence[str]) -> bool:
        if self._client.list(PODS.of(Labelled), Query(labels=f"{LABEL_QUOTA_NAME}={quota}")).items:
            return True
        return any(
            self._client.list(PODS.of(Labelled), Query(namespace, labels=f"!{LABEL_QUOTA_NAME}")).items
            for namespace in namespaces
        )

    def _profiles_changed(self, _deltas: Sequence[StoreDelta[ClusterColocationProfile]]) -> None:
        found = self._of_profiles.snapshot()
        self._profiles = tuple(found[key] for key in sorted(found))

    def _classes_changed(self, _deltas: Sequence[StoreDelta[PriorityClass]]) -> None:
        self._priority_classes = {key.name: item for key, item in self._of_classes.snapshot().items()}

    def _trees_changed(self, _deltas: Sequence[StoreDelta[ElasticQuotaProfile]]) -> None:
        found = self._of_trees.snapshot()
        self._quota_profiles = tuple(found[key] for key in sorted(found))

    def _quotas_changed(self, deltas: Sequence[StoreDelta[ElasticQuota]]) -> None:
        quotas = dict(self._quotas)
        for delta in deltas:
            if delta.new is None:
                quotas.pop(delta.key.name, None)
                continue
            try:
                quotas[delta.key.name] = parsed(delta.new)
            except QuotaError as error:
                log.warning("quota %s is not readable and counts for nothing: %s", delta.key, error)
                quotas.pop(delta.key.name, None)
        self._quotas = quotas
