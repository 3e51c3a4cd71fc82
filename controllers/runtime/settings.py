"""Settings of koord-manager; the tables of the controllers stand beside their code."""

from typing import Annotated, Any

import msgspec

from api.settings import SettingsError, convert
from cluster.resources import Key
from controllers.cluster_page.settings import ClusterPageSettings
from controllers.external_metrics.settings import ExternalMetricsSettings
from controllers.runtime.controller import AnyController
from controllers.webhooks.settings import WebhookSettings

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class LoopSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table `[loop]`: rates and intervals of the main loop."""

    round_seconds: Positive = 1.0
    """Least time between two rounds of plans: changes within it are planned together."""
    resync_jitter: Annotated[float, msgspec.Meta(ge=0, le=0.9)] = 0.2
    """Random share of the interval between two full plans of a controller."""
    requests_per_second: Positive = 100.0
    """Writes to the API server, sustained."""
    burst: Count = 200
    """Writes at once after a quiet time."""
    workers: Count = 8
    """Threads that write."""
    request_timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=3)] = 3.0
    """Longest wait for the answer to a write, of an Event too. One sent while this process leads ends before another
    one may lead: the lease lasts three seconds longer than its holder believes."""
    retry_seconds: Positive = 1.0
    """First delay after a write that failed; it doubles up to `retry_limit_seconds`."""
    retry_limit_seconds: Positive = 300.0
    """Longest delay after a write that failed."""
    outage_seconds: Positive = 120.0
    """Silence of all watches that counts as an outage of the API server: what did not come in meanwhile is no fault of
    the nodes."""


class ManagerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of koord-manager."""

    config_namespace: str = "koordinator-system"
    """Namespace of the ConfigMap and the lease."""
    config_name: str = "slo-controller-config"
    """ConfigMap with colocation and NodeSLO strategies, as Koordinator's manager reads it."""
    loop: LoopSettings = LoopSettings()
    webhook: WebhookSettings = WebhookSettings()
    page: ClusterPageSettings = ClusterPageSettings()
    external_metrics: ExternalMetricsSettings = ExternalMetricsSettings()
    controllers: dict[str, dict[str, Any]] = {}
    """Settings by controller: `[controllers.NAME]`."""

    @property
    def config_map(self) -> Key:
        """Key of the ConfigMap."""
        return Key(self.config_namespace, self.config_name)


def build(settings: ManagerSettings, found: dict[str, type[AnyController]], source: str) -> dict[str, AnyController]:
    """Return the enabled controllers by name. Raises SettingsError for an unknown controller or key."""
    for name in settings.controllers:
        if name not in found:
            known = ", ".join(sorted(found))
            raise SettingsError(source, f"[controllers.{name}]", f"there is no such controller; there are {known}")
    built: dict[str, AnyController] = {}
    for name, kind in sorted(found.items()):
        chosen = convert(settings.controllers.get(name, {}), kind.settings_type, f"{source}: [controllers.{name}]")
        if chosen.enabled:
            built[name] = kind(chosen, settings.config_map)
    return built
