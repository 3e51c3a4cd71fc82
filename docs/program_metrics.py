"""Tables of the metrics of scheduler, manager, descheduler and copilot, from the registries that they serve."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from controllers.capacity.cluster_use import ClusterUse
from controllers.descheduler.metrics import FAMILY, HELP, LABELS, DeschedulerMetrics
from controllers.runtime.cluster_use_metrics import FAMILIES, ClusterUseMetrics
from controllers.runtime.metrics import Metrics as ManagerMetrics
from controllers.webhooks.serve import webhook_seconds
from controllers.yarn.exchange import ExchangeMetrics
from scheduler.metrics import Metrics as SchedulerMetrics

_HEAD = "| series | kind | labels | meaning |\n|---|---|---|---|\n"
_STATED = {name: labels for name, (labels, _) in FAMILIES.items()} | {FAMILY: LABELS}
"""Labels of collectors that make their families when they are asked."""


def program_tables() -> str:
    """Return a section for each program."""
    manager = ManagerMetrics()
    manager.registry.register(ClusterUseMetrics(ClusterUse()))
    webhook_seconds(manager.registry)
    copilot = CollectorRegistry()
    ExchangeMetrics(copilot)
    sections = {
        "koord-manager": manager.registry,
        "koord-scheduler": SchedulerMetrics("profile").registry,
        "koord-descheduler": DeschedulerMetrics(Counter()).registry,
        "koord-yarn-copilot": copilot,
    }
    return "".join(f"\n## {name}\n\n{_HEAD}{''.join(_rows(registry))}" for name, registry in sections.items())


def _rows(registry: CollectorRegistry) -> Iterator[str]:
    labels = {
        name: getattr(metric, "_labelnames", ())
        for metric, names in registry._collector_to_names.items()
        for name in names
    }
    for family in registry.collect():
        if family.name.startswith(("python_", "process_")):
            continue
        series = f"{family.name}_total" if family.type == "counter" else family.name
        named: Any = labels.get(family.name) or _STATED.get(family.name, ())
        text = HELP if family.name == FAMILY else family.documentation.rstrip(".")
        yield f"| `{series}` | {family.type.replace('unknown', 'counter')} | {', '.join(named)} | {text} |\n"
