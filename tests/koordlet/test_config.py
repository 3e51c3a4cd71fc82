"""All settings: their defaults at once, and how a file is refused."""

from pathlib import Path

import msgspec
import pytest

from api.settings import SettingsError
from koordlet.config import AgentSettings, load_settings


def test_defaults() -> None:
    assert msgspec.to_builtins(AgentSettings()) == {
        "interval_seconds": 1.0,
        "history_seconds": 70.0,
        "root": "/",
        "probes": {"disabled": (), "backend": "auto", "max_cgroups": 2048, "max_pairs": 16384, "options": {}},
        "cgroups": {"ignore": (), "slow_every_ticks": 10},
        "qos": (),
        "metrics": {
            "enabled": True,
            "address": "127.0.0.1",
            "port": 9316,
            "certificate": "",
            "key": "",
            "client_ca": "",
            "max_cgroups": 200,
            "culprits_per_victim": 5,
            "histogram_cgroups": 50,
            "max_verdicts": 100,
            "koordinator_names": False,
        },
        "page": {"enabled": True, "remote": False},
        "detection": {
            "enabled": True,
            "rules_file": "",
            "rules": {},
            "disabled_rules": (),
            "node_type": "",
            "baselines_file": "/var/lib/koord/baselines.json",
            "save_seconds": 300.0,
            "models_file": "",
            "cpi2": False,
        },
        "recording": {
            "enabled": False,
            "directory": "/var/lib/koord/recordings",
            "max_bytes": 1 << 30,
            "segment_seconds": 300.0,
            "segment_bytes": 16 << 20,
            "stacks": True,
        },
        "enforcer": {
            "enabled": False,
            "dry_run": False,
            "strategies": (),
            "evict": False,
            "evict_ownerless": False,
            "evict_cooldown_seconds": 10.0,
            "evictions_per_hour": 30,
            "changes_per_minute": 600,
            "pod_changes_per_minute": 60,
            "foreign_write_backoff_seconds": 300.0,
            "only": (),
            "protected": (
                "/",
                "/init.scope",
                "/system.slice",
                "/runtime.slice",
                "/podruntime.slice",
                "/kubelet*",
                "/user.slice",
            ),
            "max_limited_ratio": 0.5,
            "max_frozen": 1,
            "stop_file": "/run/koord/stop",
            "network_classes": False,
            "network_policing": False,
            "network_interface": "",
            "network_bits_per_second": 0,
            "handover_seconds": None,
            "guardian": True,
            "guardian_seconds": 30.0,
            "state_dir": "/var/lib/koord",
            "audit_file": "/var/log/koord/audit.jsonl",
            "audit_bytes": 16 << 20,
            "audit_files": 4,
        },
        "triage": {
            "enabled": True,
            "cpu_budget_ratio": 0.005,
            "measure_every_ticks": 15,
            "worst_cgroups": 8,
            "rotation_ratio": 0.25,
            "rotation_ticks": 10,
            "linger_ticks": 5,
        },
        "serving": {
            "enabled": False,
            "socket": "/run/koord/koordlet.sock",
            "address": "",
            "certificate": "",
            "key": "",
            "client_ca": "",
            "max_streams": 8,
            "queue_size": 256,
        },
        "kubelet": {
            "pods_from": "auto",
            "endpoint": "",
            "server_name": "",
            "token_file": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "ca_file": "",
            "client_certificate": "",
            "client_key": "",
            "insecure_tls": False,
            "read_only_port": 0,
            "cri": True,
            "cri_socket": "",
            "pod_resources": True,
            "pod_resources_socket": "/var/lib/kubelet/pod-resources/kubelet.sock",
            "root_directory": "/var/lib/kubelet",
            "relist_seconds": 10.0,
            "timeout_seconds": 5.0,
        },
        "cluster": {
            "enabled": None,
            "kubeconfig": "",
            "node_name": "",
            "events": True,
            "node_metric": True,
            "create_node_metric": True,
            "node_slo": True,
            "first_report_seconds": 10.0,
            "fleet_baselines": False,
            "fleet_models": False,
            "rules": False,
        },
        "prediction": {
            "enabled": True,
            "directory": "/var/lib/koord/prediction",
            "safety_margin_percent": 10,
            "cold_start_seconds": 86_400.0,
            "train_seconds": 60.0,
            "expire_seconds": 1800.0,
            "save_seconds": 600.0,
        },
        "profiles": {
            "enabled": False,
            "directory": "/var/lib/koord/profiles",
            "every_seconds": 5.0,
            "segment_seconds": 300.0,
            "segment_rows": 20_000,
            "max_bytes": 1 << 30,
        },
        "devices": {
            "report": False,
            "gpus": True,
            "xpu_directory": "/var/run/koordlet/xpu-device-infos",
            "rdma": True,
            "fpgas": True,
            "interval_seconds": 10.0,
        },
        "topology": {"report": False},
        "response": {
            "resources": ("cpu", "memory", "blockio", "network", "cache", "memory_bandwidth"),
            "max_strength": 2,
            "limited_classes": ("BE",),
            "felt_slowdown_ratio": 0.05,
            "min_culprit_share": 0.1,
            "min_improvement_ratio": 0.3,
            "loss_budget_seconds_per_second": 0.02,
            "loss_budget_ratio": 0.05,
            "limit_budget_factor": 2.0,
            "turnaround_slack": 0.5,
            "settle_seconds": 1.0,
            "verify_seconds": 3.0,
            "hold_seconds": 30.0,
            "hold_factor": 2.0,
            "max_hold_seconds": 600.0,
            "remember_seconds": 900.0,
            "release_seconds": 5.0,
            "quiet_ratio": 0.05,
            "quiet_seconds": 3.0,
            "fast_path": True,
            "fast_path_budget_ratio": 0.15,
            "fast_path_window_seconds": 0.05,
            "quota_floor_millicores": 200,
            "io_floor_bytes_per_second": 1 << 20,
            "io_slowdown": 0.05,
            "reclaim_ratio": 0.25,
            "freeze_seconds": 2.0,
            "lease_seconds": 15.0,
        },
        "strategies": {
            "node_slo_file": "",
            "node_slo": {},
            "features": {},
            "reserved": {},
            "allocatable": {},
            "disk_paths": ("/",),
        },
        "hooks": {"reconcile": "auto", "features": {}, "hami_library": "/usr/local/vgpu/libvgpu.so"},
        "nri": {
            "enabled": "auto",
            "socket": "/var/run/nri/nri.sock",
            "plugin_name": "koordlet_nri",
            "plugin_index": "00",
            "connect_timeout_seconds": 6.0,
            "backoff_seconds": 1.0,
            "request_timeout_milliseconds": 500,
        },
        "runtime_proxy": {
            "enabled": False,
            "socket": "/var/run/koordlet/koordlet.sock",
            "registered_socket": "",
            "directory": "/etc/runtime/hookserver.d",
            "failure_policy": "Ignore",
        },
    }


def test_a_drop_in_lies_over_the_file(tmp_path: Path) -> None:
    main = tmp_path / "koordlet.toml"
    main.write_text('interval_seconds = 2.0\n[[qos]]\nmatch = "/batch/*"\nclass = "BE"\n')
    drop_ins = tmp_path / "koordlet.toml.d"
    drop_ins.mkdir()
    (drop_ins / "10-port.toml").write_text("[metrics]\nport = 0\n")
    settings = load_settings(main)
    assert (settings.interval_seconds, settings.metrics.port, settings.qos[0].qos_class) == (2.0, 0, "BE")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("[metrics]\nprot = 1\n", ["[metrics]", "prot"], id="unknown-key"),
        pytest.param("[metrics]\nport = 70000\n", ["[metrics]", "port", "65535"], id="port-too-high"),
        pytest.param('[[qos]]\nmatch = "x"\nclass = "XL"\n', ["qos", "class"], id="unknown-qos"),
        pytest.param("interval_seconds = 'fast'\n", ["interval_seconds", "float"], id="text-for-number"),
    ],
)
def test_refused_by_file_table_and_key(tmp_path: Path, text: str, told: list[str]) -> None:
    path = tmp_path / "koordlet.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    for word in [str(path), *told]:
        assert word in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml"):
        load_settings(tmp_path / "nowhere.toml")
