"""Which quota counts where several namespaces have one of the same name: the trees know quotas by name alone."""

from api.crds import ElasticQuota
from cluster.resources import Key
from scheduler.quota.tree import DEFAULT, ROOT, SYSTEM

RESERVED = frozenset({ROOT, DEFAULT, SYSTEM})


class QuotaClaims:
    """Quotas by name and namespace; of one name the oldest counts, and reserved names belong to one namespace."""

    def __init__(self, reserved_namespace: str) -> None:
        self._reserved_namespace = reserved_namespace
        self._quotas: dict[str, dict[Key, ElasticQuota]] = {}

    def put(self, key: Key, quota: ElasticQuota) -> None:
        """A quota appeared or changed."""
        self._quotas.setdefault(key.name, {})[key] = quota

    def drop(self, key: Key) -> None:
        """A quota is gone."""
        claims = self._quotas.get(key.name, {})
        claims.pop(key, None)
        if not claims:
            self._quotas.pop(key.name, None)

    def quota(self, key: Key) -> ElasticQuota:
        """The quota of a key. Raises KeyError."""
        return self._quotas[key.name][key]

    def owner(self, name: str) -> Key | None:
        """The quota that counts under a name."""
        claims = self._quotas.get(name, {})
        able = [key for key in claims if name not in RESERVED or key.namespace == self._reserved_namespace]
        return min(able, key=lambda key: (claims[key].metadata.creation_timestamp or "", key), default=None)

    def refused(self) -> dict[Key, str]:
        """Quotas that do not count, with the reason; an empty one where a former reason is gone."""
        reasons: dict[Key, str] = {}
        for name, claims in self._quotas.items():
            owner = self.owner(name)
            for key, quota in claims.items():
                if key == owner:
                    if any(text.endswith("/refused") for text in quota.metadata.annotations):
                        reasons[key] = ""
                elif owner is None:
                    reasons[key] = f"the name is reserved to namespace {self._reserved_namespace}"
                else:
                    reasons[key] = f"the name is taken by {owner}"
        return reasons
