"""The agent as hook server: rules behind the proxy, registration, and the NRI plugin's rules over these messages."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from api.kube.resources import CPU
from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC, ANNOTATION_RESOURCE_STATUS, BATCH_CPU, BATCH_MEMORY
from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.nri import nri_pb2 as nri
from koordlet.nri.bounds import PodBounds
from koordlet.nri.plugin import Birth, Plugin
from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.hook_service import REGISTRATION_NAME, HookService
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.plugin_answers import PluginAnswers
from koordlet.runtime_proxy.registration import FailurePolicy, parse_registration
from koordlet.runtime_proxy.settings import HookServiceSettings, ProxySettings
from koordlet.serving.socket_file import SocketUnusable
from tests.fake_cri import FakeRuntime, Kubelet
from tests.koordlet.hooks import facts

SPEC = {"containers": {"main": {"requests": {BATCH_CPU: "500"}, "limits": {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"}}}}
POD: dict[str, Any] = {
    "metadata": {"name": "job", "uid": "u1", "namespace": "shop"},
    "labels": {"koordinator.sh/qosClass": "BE"},
    "annotations": {ANNOTATION_EXTENDED_RESOURCE_SPEC: json.dumps(SPEC)},
    "linux": {"cgroup_parent": "/kubepods/besteffort/podu1"},
}
CONTAINER: dict[str, Any] = {
    "metadata": {"name": "main"},
    "linux": {"resources": {"cpu_shares": 2, "oom_score_adj": 1000}},
}
Change = Callable[[pb.ContainerResourceHookResponse], None]


class TableRules:
    """Rules by hook."""

    def __init__(self) -> None:
        self.changes: dict[HookType, Change] = {}
        self.pods: list[str] = []

    def change_pod(self, hook: HookType, asked: pb.PodSandboxHookRequest, answer: pb.PodSandboxHookResponse) -> None:
        self.pods.append(f"{hook.value} {asked.pod_meta.name}")
        answer.labels["seen"] = "yes"

    def change_container(
        self, hook: HookType, asked: pb.ContainerResourceHookRequest, answer: pb.ContainerResourceHookResponse
    ) -> None:
        if hook in self.changes:
            self.changes[hook](answer)


@pytest.fixture
def service_settings(settings: ProxySettings, tmp_path: Path) -> HookServiceSettings:
    """Settings of a service that the proxy of this test asks."""
    return HookServiceSettings(enabled=True, socket=str(tmp_path / "koordlet.sock"), directory=settings.hook_directory)


@pytest.fixture
def rules(service_settings: HookServiceSettings) -> Iterator[TableRules]:
    """Rules of a running service."""
    table = TableRules()
    service = HookService(service_settings, table)
    service.start()
    yield table
    service.close()


def set_quota(answer: pb.ContainerResourceHookResponse) -> None:
    answer.container_resources.cpu_quota = -1


def set_env(answer: pb.ContainerResourceHookResponse) -> None:
    answer.container_envs["GPU"] = "1"


def boom(_answer: pb.ContainerResourceHookResponse) -> None:
    raise ValueError("no such rule")


@pytest.mark.parametrize(
    ("change", "quota", "envs"),
    [
        pytest.param(set_quota, -1, [], id="quota"),
        pytest.param(set_env, 0, [("GPU", b"1")], id="environment"),
        pytest.param(boom, 0, [], id="a-failing-rule-is-ignored"),
    ],
)
def test_rules_behind_the_proxy(
    change: Change, quota: int, envs: list[tuple[str, bytes]], kubelet: Kubelet, runtime: FakeRuntime, rules: TableRules
) -> None:
    rules.changes[HookType.PRE_CREATE_CONTAINER] = change
    pod = kubelet.run_pod(**POD)
    config = runtime.containers[kubelet.create(pod, **CONTAINER)].config
    assert runtime.pods[pod].config.labels["seen"] == "yes"
    assert (config.linux.resources.cpu_quota, config.linux.resources.oom_score_adj) == (quota, 1000)
    assert [(env.key, env.value) for env in config.envs] == envs
    kubelet.on_pod("StopPodSandbox", pod)
    assert rules.pods == ["PreRunPodSandbox job", "PostStopPodSandbox job"]


def test_a_failing_rule_of_a_strict_server_fails_the_call(
    kubelet: Kubelet, service_settings: HookServiceSettings
) -> None:
    table = TableRules()
    table.changes[HookType.PRE_CREATE_CONTAINER] = boom
    service = HookService(msgspec.structs.replace(service_settings, failure_policy="Fail"), table)
    service.start()
    pod = kubelet.run_pod(**POD)
    with pytest.raises(grpc.RpcError, match="ValueError: no such rule"):
        kubelet.create(pod, **CONTAINER)
    assert service.failures == {"PreCreateContainer": 1}
    service.close()


def test_registration_and_its_end(service_settings: HookServiceSettings) -> None:
    file = Path(service_settings.directory) / REGISTRATION_NAME
    seen_by_proxy = msgspec.structs.replace(service_settings, registered_socket="/host/koordlet.sock")
    service = HookService(seen_by_proxy, TableRules())
    service.start()
    server = parse_registration(str(file), file.read_bytes())
    assert (server.socket, server.policy) == ("/host/koordlet.sock", FailurePolicy.IGNORE)
    assert server.hooks == frozenset(HookType)
    assert [path.name for path in file.parent.iterdir()] == [REGISTRATION_NAME]
    with pytest.raises(SocketUnusable, match="another process serves"):
        HookService(service_settings, TableRules()).start()
    service.close()
    service.close()
    assert not file.exists()
    assert not Path(service_settings.socket).exists()


def test_the_registration_of_another_agent_stays(service_settings: HookServiceSettings) -> None:
    file = Path(service_settings.directory) / REGISTRATION_NAME
    service = HookService(service_settings, TableRules())
    service.start()
    file.write_bytes(b'{"remote-endpoint": "/other.sock"}')
    service.close()
    assert file.exists()


def test_without_a_directory_to_register_in_it_serves(
    service_settings: HookServiceSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    service = HookService(msgspec.structs.replace(service_settings, directory=str(tmp_path / "file/d")), TableRules())
    with caplog.at_level(logging.WARNING):
        service.start()
    assert "not registered with koord-runtime-proxy" in caplog.text
    assert Path(service_settings.socket).exists()
    service.close()


@pytest.fixture
def births() -> list[Birth]:
    """Births that the plugin told of."""
    return []


@pytest.fixture
def known() -> list[PodFacts]:
    """What the table of pods has."""
    return []


@pytest.fixture
def plugin_service(
    service_settings: HookServiceSettings, births: list[Birth], known: list[PodFacts]
) -> Iterator[HookService]:
    """A service with the rules of the agent."""
    found = facts.node()
    plugin = Plugin(
        HookRules(),
        lambda _pods: found,
        lambda: PodTable(known, generation=1),
        v1=True,
        bounds_of=lambda _path: PodBounds(),
        on_birth=births.append,
    )
    service = HookService(service_settings, PluginAnswers(plugin))
    service.start()
    yield service
    service.close()


def test_a_batch_container_starts_within_its_limits(
    kubelet: Kubelet, runtime: FakeRuntime, plugin_service: HookService, births: list[Birth]
) -> None:
    container = kubelet.create(kubelet.run_pod(**POD), cri.PodSandboxConfig(**POD), **CONTAINER)
    resources = runtime.containers[container].config.linux.resources
    assert (resources.cpu_shares, resources.cpu_quota, resources.cpu_period) == (512, 50_000, 100_000)
    assert (resources.memory_limit_in_bytes, resources.oom_score_adj) == (1 << 30, 1000)
    assert [birth.path for birth in births] == ["/kubepods/besteffort/podu1"]
    update = cri.UpdateContainerResourcesRequest(container_id=container, linux={"cpu_quota": 10_000})
    kubelet.call("UpdateContainerResources", update.SerializeToString())
    (sent,) = runtime.requests("UpdateContainerResources")
    assert cri.UpdateContainerResourcesRequest.FromString(sent).linux.cpu_quota == 50_000


def test_cpus_that_the_scheduler_chose(
    kubelet: Kubelet, runtime: FakeRuntime, plugin_service: HookService, known: list[PodFacts]
) -> None:
    placed = {ANNOTATION_RESOURCE_STATUS: json.dumps({"cpuset": "2-3"})}
    pod = {**POD, "labels": {"koordinator.sh/qosClass": "LSR"}, "annotations": placed}
    unknown = kubelet.create(kubelet.run_pod(**pod), **CONTAINER)
    assert runtime.containers[unknown].config.linux.resources.cpuset_cpus == ""
    known.append(PodFacts("default/web", QoSClass.LSR, annotations=placed, requests={CPU: 2000}, uid="u1"))
    container = kubelet.create(kubelet.run_pod(**pod), **CONTAINER)
    assert runtime.containers[container].config.linux.resources.cpuset_cpus == "2-3"


class Devices:
    """A plugin that gives a device, a mount and a variable."""

    def handle(self, method: str, _payload: bytes) -> bytes | None:
        if method != "CreateContainer":
            return None
        adjust = nri.ContainerAdjustment(
            mounts=[nri.Mount(destination="/a", source="/b")],
            env=[nri.KeyValue(key="GPU", value="0")],
            linux=nri.LinuxContainerAdjustment(devices=[nri.LinuxDevice(path="/dev/x")]),
        )
        return nri.CreateContainerResponse(adjust=adjust).SerializeToString()


def test_what_the_messages_cannot_carry_is_said(caplog: pytest.LogCaptureFixture) -> None:
    answers = PluginAnswers(Devices())
    for _ in range(2):
        answer = pb.ContainerResourceHookResponse()
        answers.change_container(HookType.PRE_CREATE_CONTAINER, pb.ContainerResourceHookRequest(), answer)
        assert answer.container_envs == {"GPU": "0"}
    assert caplog.text.count("use NRI") == 1
    answers.change_pod(HookType.PRE_RUN_POD_SANDBOX, pb.PodSandboxHookRequest(), pb.PodSandboxHookResponse())
