"""The info directory: what the hardware offers, and how the last command went."""

import errno
import re
from collections.abc import Callable

from tests.resctrl_fs.command import CommandError
from tests.resctrl_fs.groups import GroupTable
from tests.resctrl_fs.hardware import MBM_DEFAULT_CONFIG, BandwidthControl, CacheControl, Monitoring
from tests.resctrl_fs.nodes import Directory, File, Node
from tests.resctrl_fs.schemata import Schema


def _fixed(value: object) -> File:
    return File(lambda: f"{value}\n")


class InfoTree:
    """Builds info/; keeps the event configuration, which belongs to no group."""

    def __init__(self, groups: GroupTable, last_status: Callable[[], str]) -> None:
        self._groups = groups
        self._last_status = last_status
        monitoring = groups.machine.monitoring
        self._configs: dict[str, dict[int, int]] = {}
        if monitoring and monitoring.is_configurable:
            for event in monitoring.mbm_events:
                self._configs[event] = dict.fromkeys(monitoring.domains, MBM_DEFAULT_CONFIG[event])

    def entries(self) -> dict[str, Node]:
        nodes: dict[str, Node] = {"last_cmd_status": File(self._last_status)}
        for schema in self._groups.table.schemas:
            nodes[schema.name] = Directory(lambda schema=schema: self._schema_entries(schema))  # type: ignore[misc]
        monitoring = self._groups.machine.monitoring
        if monitoring:
            nodes["L3_MON"] = Directory(lambda: self._monitoring_entries(monitoring))
        return nodes

    def _schema_entries(self, schema: Schema) -> dict[str, Node]:
        nodes: dict[str, Node] = {"num_closids": _fixed(schema.num_closids)}
        if isinstance(schema.control, CacheControl):
            nodes |= self._cache_entries(schema, schema.control)
        else:
            nodes |= self._bandwidth_entries(schema.control)
        return nodes

    def _cache_entries(self, schema: Schema, control: CacheControl) -> dict[str, Node]:
        return {
            "cbm_mask": _fixed(f"{control.full_mask:x}"),
            "min_cbm_bits": _fixed(control.min_cbm_bits),
            "shareable_bits": _fixed(f"{control.shareable_bits:x}"),
            "bit_usage": File(lambda: self._groups.table.bit_usage_text(schema)),
            "sparse_masks": _fixed(int(control.has_sparse_masks)),
        }

    @staticmethod
    def _bandwidth_entries(control: BandwidthControl) -> dict[str, Node]:
        nodes: dict[str, Node] = {
            "min_bandwidth": _fixed(control.min_bandwidth),
            "bandwidth_gran": _fixed(control.granularity),
            "delay_linear": _fixed(int(control.is_linear)),
        }
        if control.throttle_mode != "undefined":
            nodes["thread_throttle_mode"] = _fixed(control.throttle_mode)
        return nodes

    def _monitoring_entries(self, monitoring: Monitoring) -> dict[str, Node]:
        nodes: dict[str, Node] = {
            "num_rmids": _fixed(monitoring.num_rmids),
            "mon_features": File(lambda: self._features_text(monitoring)),
            "max_threshold_occupancy": File(
                lambda: f"{self._groups.threshold_bytes}\n", self._write_threshold, is_command=False
            ),
        }
        for event in self._configs:
            nodes[f"{event}_config"] = self._config_file(monitoring, event)
        return nodes

    def _features_text(self, monitoring: Monitoring) -> str:
        lines = []
        for event in monitoring.events:
            lines.append(f"{event}\n")
            if event in self._configs:
                lines.append(f"{event}_config\n")
        return "".join(lines)

    def _write_threshold(self, text: str, _pid: int) -> None:
        monitoring, l3 = self._groups.machine.monitoring, self._groups.machine.l3
        assert monitoring is not None
        if not re.fullmatch(r"[0-9]+\n?", text):
            raise CommandError(errno.EINVAL)
        limit_bytes = l3.size_bytes if l3 else 0
        if int(text) > limit_bytes:
            raise CommandError(errno.EINVAL)
        self._groups.threshold_bytes = int(text) // monitoring.upscale_bytes * monitoring.upscale_bytes

    def _config_file(self, monitoring: Monitoring, event: str) -> File:
        configs = self._configs[event]
        return File(
            lambda: ";".join(f"{domain}=0x{value:02x}" for domain, value in configs.items()) + "\n",
            lambda text, _pid: self._write_config(monitoring, configs, text),
            needs_newline=True,
        )

    def _write_config(self, monitoring: Monitoring, configs: dict[int, int], text: str) -> None:
        """Change an event's configuration: every RMID's bandwidth counters restart in that domain."""
        for part in filter(None, text.strip().split(";")):
            domain_text, _, value_text = part.partition("=")
            if not domain_text.strip().isdigit():
                raise CommandError(errno.EINVAL, "Missing '=' or non-numeric domain id")
            if not re.fullmatch(r"(0x)?[0-9a-fA-F]+", value_text.strip()):
                raise CommandError(errno.EINVAL, "Non-numeric event configuration value")
            domain, value = int(domain_text), int(value_text, 16)
            if value & ~monitoring.config_mask:
                mask = monitoring.config_mask
                raise CommandError(errno.EINVAL, f"Invalid event configuration: max valid mask is 0x{mask:02x}")
            if domain not in configs:
                raise CommandError(errno.EINVAL)
            if configs[domain] != value:
                configs[domain] = value
                self._restart_counters(monitoring, domain)

    def _restart_counters(self, monitoring: Monitoring, domain: int) -> None:
        for group in self._groups.all_groups():
            for event in monitoring.mbm_events:
                self._groups.counters.reset_domain(group.rmid, event, domain)
