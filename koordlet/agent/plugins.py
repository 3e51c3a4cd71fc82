"""Discovery of collectors and probes, which registers the columns that they declare."""

import koordlet.collectors
import probes
from api.metrics import register
from api.plugin import discover
from koordlet.collectors import Collector
from probes.probe import Probe


def discover_collectors() -> dict[str, type[Collector]]:
    """Return the modules of `koordlet.collectors` and the entry points of `koord.collectors` by name.

    Raises PluginError for one that cannot serve or declares a column of another plugin.
    """
    found = discover(koordlet.collectors, Collector, "koord.collectors")  # type: ignore[type-abstract]
    for name, kind in found.items():
        register(kind.metrics, f"collector {name}")
    return found


def discover_probes() -> dict[str, type[Probe]]:
    """Return the modules of `probes` and the entry points of `koord.probes` by name.

    Raises PluginError for one that cannot serve or declares a column of another plugin.
    """
    found = discover(probes, Probe, "koord.probes")  # type: ignore[type-abstract]
    for name, kind in found.items():
        register(kind.metrics, f"probe {name}")
    return found
