"""Projection: the configuration in use, by ConfigMap. It remembers the last readable state of each part."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from api.kube.meta import ObjectReference
from cluster.events import Event
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.kinds import CONFIG_MAP
from controllers.runtime.view import Projection, View
from controllers.slo.config import DEFAULT, PARTS, SloConfig, parse_config


class SloConfigs(Projection[Mapping[Key, SloConfig]]):
    """Configurations of the ConfigMaps that have a key of the slo-controller."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (CONFIG_MAP,)

    def __init__(self) -> None:
        self._configs: dict[Key, SloConfig] = {}
        self._value: Mapping[Key, SloConfig] = MappingProxyType({})

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changed ConfigMaps."""
        for change in changes:
            if change.new is None:
                self._configs.pop(change.key, None)
            elif change.key in self._configs or any(part in change.new.data for part in PARTS):
                self._configs[change.key] = parse_config(change.new.data, self._configs.get(change.key))
        self._value = MappingProxyType(dict(self._configs))

    def value(self) -> Mapping[Key, SloConfig]:
        """Return the configurations by key."""
        return self._value


def config_of(view: View, key: Key) -> SloConfig:
    """Return the configuration in use; the defaults without a ConfigMap."""
    return view.of(SloConfigs).get(key, DEFAULT)


def fault_events(config: SloConfig, key: Key) -> list[Event]:
    """Return an Event for each part of the ConfigMap that cannot be used."""
    regarding = ObjectReference(api_version="v1", kind="ConfigMap", namespace=key.namespace, name=key.name)
    return [
        Event(regarding, fault.reason, f"{fault.part} is not used: {fault.problem}", "ReadConfiguration", "Warning")
        for fault in config.faults
    ]
