"""Settings of the agent with their defaults and meanings; `koordlet run --check-config` validates a file."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.qos import QoSClass
from api.settings import SettingsError, convert, merge, parse
from koordlet.devices.settings import DeviceSettings
from koordlet.hooks.settings import HooksSettings
from koordlet.kube.settings import ClusterSettings
from koordlet.kubelet.settings import KubeletSettings
from koordlet.node_page.settings import PageSettings
from koordlet.nri.settings import NriSettings
from koordlet.prediction.settings import PredictionSettings
from koordlet.profiles.settings import ProfileSettings
from koordlet.response.settings import ResponseSettings
from koordlet.runtime_proxy.settings import HookServiceSettings
from koordlet.serving.settings import ServingSettings
from koordlet.topology.settings import TopologySettings
from koordlet.triage.policy import TriageSettings

Seconds = Annotated[float, Meta(ge=0.1, le=3600)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class SettingsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every table: unknown keys are refused."""


class ProbeSettings(SettingsTable, frozen=True):
    """[probes]: which kernel probes run and how large their maps may grow."""

    disabled: tuple[str, ...] = ()
    """Probes not to load, by name."""
    backend: Literal["auto", "core", "bcc", "none"] = "auto"
    """`auto` (CO-RE objects, or BCC without BTF), `core`, `bcc` or `none` (kernel counters only)."""
    max_cgroups: Count = 2048
    """Cgroups each probe can hold at once; more are counted as lost."""
    max_pairs: Count = 16384
    """Victim-culprit pairs each probe can hold between two ticks."""
    options: dict[str, dict[str, bool | int | float | str]] = msgspec.field(default_factory=dict)
    """Options of single probes: `[probes.options.<name>]`."""


class CgroupSettings(SettingsTable, frozen=True):
    """[cgroups]: cgroups that are measured, and how often."""

    ignore: tuple[str, ...] = ()
    """Globs of paths that are not measured."""
    slow_every_ticks: Annotated[int, Meta(ge=1, le=600)] = 10
    """Costly files (memory.stat, PSI, io) are read in turn, each cgroup once in this many ticks."""


class QoSRuleSettings(SettingsTable, frozen=True):
    """[[qos]]: cgroups whose path or name matches the glob belong to the class."""

    match: str
    qos_class: QoSClass = msgspec.field(name="class")


class MetricsSettings(SettingsTable, frozen=True):
    """[metrics]: the Prometheus endpoint."""

    enabled: bool = True
    address: str = "127.0.0.1"
    """On another address than a loopback one, and without the certificate below, all who reach the port read names and
    use of pods and cgroups."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 9316
    """0 takes a free port."""
    certificate: str = ""
    """PEM file of the endpoint's certificate: serves HTTPS instead of HTTP, the node page included. The files are read
    again when they change; while they do not fit each other, the last ones hold."""
    key: str = ""
    """PEM file of its private key."""
    client_ca: str = ""
    """PEM file of the authorities of clients: other clients read `/healthz` and `/readyz` only. Empty lets all read."""
    max_cgroups: Count = 200
    """Cgroups with series of their own; the rest is summed as `other`."""
    culprits_per_victim: Annotated[int, Meta(ge=1, le=100)] = 5
    """Culprits with a blame series of their own for each victim; the rest is summed as `other`."""
    histogram_cgroups: Annotated[int, Meta(ge=0, le=10_000)] = 50
    """Cgroups that also get histogram buckets; the node's total always has them."""
    max_verdicts: Count = 100
    """Open verdicts with series of their own, the worst; the rest is summed as `other`."""
    koordinator_names: bool = False
    """Serve what Koordinator's agent serves too, under its names (`koordlet_...`), as far as it is measured."""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("`certificate` and `key` go together")
        if self.client_ca and not self.certificate:
            raise ValueError("`client_ca` needs `certificate` and `key`")


class EnforcerSettings(SettingsTable, frozen=True):
    """[enforcer]: settings that may be changed on this node, and how often; none by default."""

    enabled: bool = False
    dry_run: bool = False
    """Decide and audit as usual, but write to no cgroup, resource group, process, link or journal."""
    strategies: tuple[str, ...] = ()
    """Globs of the strategies whose intents are applied; those of others are refused and audited."""
    evict: bool = False
    """Allow strategies to evict: pods through the API server, elsewhere by ending the processes of a cgroup."""
    evict_ownerless: bool = False
    """Allow the eviction of pods that no controller would start elsewhere."""
    evict_cooldown_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    """Time between two evictions on this node."""
    evictions_per_hour: Annotated[int, Meta(ge=1, le=100_000)] = 30
    """Evictions on this node in an hour."""
    changes_per_minute: Count = 600
    """Changes on the whole node; restoring is not limited."""
    pod_changes_per_minute: Count = 60
    """Changes of one pod, or of one cgroup outside Kubernetes."""
    foreign_write_backoff_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    """Time that a setting is left alone after another program wrote it."""
    only: tuple[str, ...] = ()
    """Globs of the cgroups that may be changed at all; empty is every one that is not protected."""
    protected: tuple[str, ...] = (
        "/",
        "/init.scope",
        "/system.slice",
        "/runtime.slice",
        "/podruntime.slice",
        "/kubelet*",
        "/user.slice",
    )
    """Globs of cgroup paths, with all below them, whose settings may only be loosened: more weight, wider limits."""
    max_limited_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Of the best-effort pods and cgroups, how many may be limited at once in answer to verdicts; four always may."""
    max_frozen: Annotated[int, Meta(ge=0, le=1000)] = 1
    """Pods that may be frozen at once in answer to verdicts."""
    stop_file: str = "/run/koord/stop"
    """While this file is there every action ends and none begins; looked at in each step, empty looks at none."""
    network_classes: bool = False
    """Allow traffic classes: the first replaces the queue of the link, for all traffic of the host."""
    network_policing: bool = False
    """Allow limits of what arrives for a cgroup: packets beyond them are dropped. No queue is replaced for it."""
    network_interface: str = ""
    """The link that gets traffic classes; that of the default route where it is empty."""
    network_bits_per_second: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    """Speed of that link; 0 asks the interface."""
    handover_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    """Time for which actions stay in effect after SIGTERM for the next agent to take over; 0 restores at once. Unset:
    60 during a rollout of the agent's DaemonSet, else 0. Without a guardian that outlives the agent it is 0."""
    guardian: bool = True
    """Start a process that restores actions when the agent dies, hangs, or is not followed by another one."""
    guardian_seconds: Annotated[float, Meta(ge=2, le=3600)] = 30.0
    """Time without a completed tick after which actions are restored."""
    state_dir: str = "/var/lib/koord"
    """Directory of the journal of settings to restore. It may be below /run, which a reboot clears as it clears what
    the journal would restore: no change then waits for a disk. It must outlive the agent, in a container too."""
    audit_file: str = "/var/log/koord/audit.jsonl"
    """One JSON line for each decision that changed; empty writes none."""
    audit_bytes: Annotated[int, Meta(ge=65_536, le=1 << 40)] = 16 << 20
    """Size at which the audit file is rotated."""
    audit_files: Annotated[int, Meta(ge=1, le=1000)] = 4
    """Audit files that are kept, the current one included."""


class DetectionSettings(SettingsTable, frozen=True):
    """[detection]: rules and baselines of the judge; `[detection.rules.<name>]` adds a rule or changes keys of one."""

    enabled: bool = True
    rules_file: str = ""
    """TOML or YAML file with tables `[rules.<name>]` that replace the built-in rules."""
    rules: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Rules by name, merged over those of the file."""
    disabled_rules: tuple[str, ...] = ()
    """Names of rules that are not applied."""
    node_type: str = ""
    """Node type whose baselines are comparable; the CPU model where it is empty."""
    baselines_file: str = "/var/lib/koord/baselines.json"
    """File of the baselines; empty keeps them in memory only."""
    save_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    """Time between saves of the baselines, which are saved at the end too."""
    models_file: str = ""
    """Anomaly models that `koord-detector train` wrote."""
    cpi2: bool = False
    """Judge cycles per instruction as CPI2 does too; needs a PMU."""


class RecordingSettings(SettingsTable, frozen=True):
    """[recording]: frames on disk, for `koord-detector` replay and explain."""

    enabled: bool = False
    directory: str = "/var/lib/koord/recordings"
    max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 44)] = 1 << 30
    """Size of all segments together; the oldest are deleted."""
    segment_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    """Length of a segment, which can be replayed alone; shorter ones repeat the judge's state more often."""
    segment_bytes: Annotated[int, Meta(ge=65_536, le=1 << 34)] = 16 << 20
    """Size from which a new segment starts, at most a quarter of `max_bytes`."""
    stacks: bool = True
    """Record two seconds of stacks of culprits and victim when a verdict opens, once a minute at most."""


class StrategiesSettings(SettingsTable, frozen=True):
    """[strategies]: strategies enabled besides the response to verdicts (docs/strategies.md)."""

    node_slo_file: str = ""
    """JSON, YAML or TOML file with the spec of a NodeSLO; without it and `node_slo` no strategy runs."""
    node_slo: dict[str, Any] = msgspec.field(default_factory=dict)
    """The spec itself: `[strategies.node_slo.<section>]`."""
    features: dict[str, bool] = msgspec.field(default_factory=dict)
    """Feature gates by Koordinator's names, where they differ from its defaults."""
    reserved: dict[str, Annotated[int, Meta(ge=0)]] = msgspec.field(default_factory=dict)
    """Part of `cpu` (millicores) and `memory` (bytes) reserved for the system: the rest is allocatable."""
    allocatable: dict[str, Annotated[int, Meta(ge=0)]] = msgspec.field(default_factory=dict)
    """Allocatable amounts by resource name, where the cluster does not give them: CPU in millicores, else bytes."""
    disk_paths: tuple[str, ...] = ("/",)
    """Any path of each local file system that workloads write to; the fullest of them counts."""


class AgentSettings(SettingsTable, frozen=True):
    """Settings of the agent: the tables of the file."""

    interval_seconds: Seconds = 1.0
    """Time between ticks; one on which a verdict depends may come after half of it."""
    history_seconds: Annotated[float, Meta(ge=2, le=3600)] = 70.0
    """Time that frames are kept in memory."""
    root: str = "/"
    """Mount point of the host's file system (for a container with the host under another path)."""
    probes: ProbeSettings = ProbeSettings()
    cgroups: CgroupSettings = CgroupSettings()
    qos: tuple[QoSRuleSettings, ...] = ()
    metrics: MetricsSettings = MetricsSettings()
    page: PageSettings = PageSettings()
    detection: DetectionSettings = DetectionSettings()
    recording: RecordingSettings = RecordingSettings()
    enforcer: EnforcerSettings = EnforcerSettings()
    response: ResponseSettings = ResponseSettings()
    strategies: StrategiesSettings = StrategiesSettings()
    hooks: HooksSettings = HooksSettings()
    nri: NriSettings = NriSettings()
    runtime_proxy: HookServiceSettings = HookServiceSettings()
    triage: TriageSettings = TriageSettings()
    serving: ServingSettings = ServingSettings()
    cluster: ClusterSettings = ClusterSettings()
    kubelet: KubeletSettings = KubeletSettings()
    prediction: PredictionSettings = PredictionSettings()
    profiles: ProfileSettings = ProfileSettings()
    devices: DeviceSettings = DeviceSettings()
    topology: TopologySettings = TopologySettings()


def load_settings(path: Path | None) -> AgentSettings:
    """Read `path` and, in name order, the files in `<path>.d/`. Raises SettingsError naming file, table and key."""
    if path is None:
        return AgentSettings()
    document: dict[str, object] = {}
    source = str(path)
    for part in (path, *sorted(Path(f"{path}.d").glob("*.toml"))):
        try:
            text = part.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(str(part), "", f"cannot be read: {error}") from error
        piece = parse(text, str(part))
        convert(piece, AgentSettings, str(part))
        document = merge(document, piece)
    return convert(document, AgentSettings, source)
