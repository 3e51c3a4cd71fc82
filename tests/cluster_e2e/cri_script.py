"""Every call of the Container Runtime Interface in one pod's life, the usual mistakes included, and their answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.cluster_e2e.cri_calls import entries, first_text
from tests.cluster_e2e.cri_calls import field as part
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.wire import Value, canonical, renamed, shape

RUNTIME, IMAGES = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"
NODE_NETWORK = part(1, 2)
"""NamespaceOption of the node's network."""
USER = 1234
SHARES = 300
LABELS = {"app": "conformance"}
ANNOTATIONS = {"example.com/note": "kept"}
NOBODY = "f" * 64
"""Id that no pod or container has."""
UNKNOWN = part(1, NOBODY)
"""Request of it."""


@dataclass
class Life:
    """What the requests of one pod's life refer to; `name` tells two lives apart."""

    name: str
    parent: str
    logs: Path
    host_file: Path
    sandbox: str = NOBODY
    container: str = NOBODY

    @property
    def sandbox_config(self) -> bytes:
        """PodSandboxConfig."""
        metadata = part(1, self.name) + part(2, f"uid-{self.name}") + part(3, "default")
        config = part(1, metadata) + part(3, str(self.logs)) + entries(6, LABELS) + entries(7, ANNOTATIONS)
        return config + part(8, part(1, self.parent) + part(2, part(1, NODE_NETWORK)))

    @property
    def container_config(self) -> bytes:
        """ContainerConfig, with fields that no hook is asked about: a mount, a user, a working directory."""
        config = part(1, part(1, "main")) + part(2, part(1, BUSYBOX))
        config += b"".join(part(3, word) for word in ("sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done"))
        config += part(5, "/etc") + part(6, part(1, "GREETING") + part(2, "hello"))
        config += part(7, part(1, "/host-file") + part(2, str(self.host_file)) + part(3, 1))
        config += entries(9, LABELS) + entries(10, ANNOTATIONS) + part(11, "main.log")
        security = part(3, NODE_NETWORK) + part(5, part(1, USER))
        return config + part(15, part(1, part(3, SHARES)) + part(2, security))

    @property
    def create(self) -> bytes:
        """CreateContainerRequest."""
        return part(1, self.sandbox) + part(2, self.container_config) + part(3, self.sandbox_config)

    def execute(self, *command: str, seconds: int = 10) -> bytes:
        """ExecSyncRequest."""
        return part(1, self.container) + b"".join(part(2, word) for word in command) + part(3, seconds)


@dataclass(frozen=True)
class Step:
    """A call; `keep` says in which attribute of the life the id goes that is answered."""

    name: str
    method: str
    request: Callable[[Life], bytes] | bytes = b""
    keep: str = ""
    is_measured: bool = False
    """Whether the answer has figures of the moment, which two calls cannot share."""


def sandbox(life: Life) -> bytes:
    """Request of a sandbox by id."""
    return part(1, life.sandbox)


def container(life: Life) -> bytes:
    """Request of a container by id."""
    return part(1, life.container)


def _filtered(life: Life) -> bytes:
    return part(1, part(1, life.container))


def _sandbox_filtered(life: Life) -> bytes:
    return part(1, part(1, life.sandbox))


def _image(name: str) -> bytes:
    return part(1, part(1, name))


MISSING_IMAGE = "localhost:1/none/there:1"
GARBAGE = b"\x0a\xff\xff"

SCRIPT = (
    Step("version", f"{RUNTIME}Version", part(1, "v1")),
    Step("status", f"{RUNTIME}Status"),
    Step("verbose status", f"{RUNTIME}Status", part(1, 1), is_measured=True),
    Step("runtime's configuration", f"{RUNTIME}RuntimeConfig"),
    Step("pod network", f"{RUNTIME}UpdateRuntimeConfig", part(1, part(1, part(1, "10.245.7.0/24")))),
    Step("images", f"{IMAGES}ListImages"),
    Step("image", f"{IMAGES}ImageStatus", _image(BUSYBOX)),
    Step("verbose image", f"{IMAGES}ImageStatus", _image(BUSYBOX) + part(2, 1)),
    Step("unknown image", f"{IMAGES}ImageStatus", _image(MISSING_IMAGE)),
    Step("image without name", f"{IMAGES}ImageStatus"),
    Step("pull from nowhere", f"{IMAGES}PullImage", _image(MISSING_IMAGE)),
    Step("remove an unknown image", f"{IMAGES}RemoveImage", _image(MISSING_IMAGE)),
    Step("image file system", f"{IMAGES}ImageFsInfo", is_measured=True),
    Step("pod without configuration", f"{RUNTIME}RunPodSandbox"),
    Step(
        "pod of an unknown handler",
        f"{RUNTIME}RunPodSandbox",
        lambda life: part(1, life.sandbox_config) + part(2, "no"),
    ),
    Step("pod", f"{RUNTIME}RunPodSandbox", lambda life: part(1, life.sandbox_config), keep="sandbox"),
    Step("pod again", f"{RUNTIME}RunPodSandbox", lambda life: part(1, life.sandbox_config)),
    Step("pod's status", f"{RUNTIME}PodSandboxStatus", sandbox),
    Step(
        "pod's verbose status", f"{RUNTIME}PodSandboxStatus", lambda life: sandbox(life) + part(2, 1), is_measured=True
    ),
    Step("status of an unknown pod", f"{RUNTIME}PodSandboxStatus", UNKNOWN),
    Step("pods", f"{RUNTIME}ListPodSandbox", _sandbox_filtered),
    Step("pods of a label", f"{RUNTIME}ListPodSandbox", part(1, entries(3, {"app": "none"}))),
    Step("container in an unknown pod", f"{RUNTIME}CreateContainer", lambda life: part(1, NOBODY) + life.create[66:]),
    Step("container", f"{RUNTIME}CreateContainer", lambda life: life.create, keep="container"),
    Step("container again", f"{RUNTIME}CreateContainer", lambda life: life.create),
    Step("created", f"{RUNTIME}ContainerStatus", container),
    Step("command in a container that does not run", f"{RUNTIME}ExecSync", lambda life: life.execute("true")),
    Step("start", f"{RUNTIME}StartContainer", container),
    Step("start again", f"{RUNTIME}StartContainer", container),
    Step("start an unknown container", f"{RUNTIME}StartContainer", UNKNOWN),
    Step("running", f"{RUNTIME}ContainerStatus", container),
    Step("running in detail", f"{RUNTIME}ContainerStatus", lambda life: container(life) + part(2, 1), is_measured=True),
    Step("status of an unknown container", f"{RUNTIME}ContainerStatus", UNKNOWN),
    Step("containers", f"{RUNTIME}ListContainers", _filtered),
    Step(
        "command",
        f"{RUNTIME}ExecSync",
        lambda life: life.execute("sh", "-c", "id -u; pwd; echo $GREETING; cat /host-file; echo oops >&2; exit 7"),
    ),
    Step("unknown command", f"{RUNTIME}ExecSync", lambda life: life.execute("none-of-this-name")),
    Step("command that takes too long", f"{RUNTIME}ExecSync", lambda life: life.execute("sleep", "60", seconds=1)),
    Step("command in an unknown container", f"{RUNTIME}ExecSync", part(1, NOBODY) + part(2, "true")),
    Step("exec", f"{RUNTIME}Exec", lambda life: container(life) + part(2, "true") + part(5, 1)),
    Step("attach", f"{RUNTIME}Attach", lambda life: container(life) + part(4, 1)),
    Step("forward a port", f"{RUNTIME}PortForward", lambda life: sandbox(life) + part(2, 80)),
    Step("exec in an unknown container", f"{RUNTIME}Exec", UNKNOWN + part(2, "true")),
    Step("attach to an unknown container", f"{RUNTIME}Attach", UNKNOWN + part(4, 1)),
    Step("forward a port of an unknown pod", f"{RUNTIME}PortForward", UNKNOWN),
    Step("reopen the log", f"{RUNTIME}ReopenContainerLog", container),
    Step(
        "update",
        f"{RUNTIME}UpdateContainerResources",
        lambda life: container(life) + part(2, part(3, 2 * SHARES) + part(4, 64 << 20)),
    ),
    Step("update an unknown container", f"{RUNTIME}UpdateContainerResources", UNKNOWN + part(2, b"")),
    Step("updated", f"{RUNTIME}ContainerStatus", container),
    Step(
        "update the pod", f"{RUNTIME}UpdatePodSandboxResources", lambda life: sandbox(life) + part(3, part(3, SHARES))
    ),
    Step("container's figures", f"{RUNTIME}ContainerStats", container, is_measured=True),
    Step("figures of an unknown container", f"{RUNTIME}ContainerStats", UNKNOWN),
    Step("containers' figures", f"{RUNTIME}ListContainerStats", _filtered, is_measured=True),
    Step("pod's figures", f"{RUNTIME}PodSandboxStats", sandbox, is_measured=True),
    Step("figures of an unknown pod", f"{RUNTIME}PodSandboxStats", UNKNOWN),
    Step("pods' figures", f"{RUNTIME}ListPodSandboxStats", _sandbox_filtered, is_measured=True),
    Step("metrics", f"{RUNTIME}ListMetricDescriptors"),
    Step("pods' metrics", f"{RUNTIME}ListPodSandboxMetrics", is_measured=True),
    Step("checkpoint of an unknown container", f"{RUNTIME}CheckpointContainer", UNKNOWN),
    Step("stop", f"{RUNTIME}StopContainer", lambda life: container(life) + part(2, 10)),
    Step("stop again", f"{RUNTIME}StopContainer", lambda life: container(life) + part(2, 10)),
    Step("stop an unknown container", f"{RUNTIME}StopContainer", UNKNOWN),
    Step("exited", f"{RUNTIME}ContainerStatus", container),
    Step("remove", f"{RUNTIME}RemoveContainer", container),
    Step("remove again", f"{RUNTIME}RemoveContainer", container),
    Step("removed", f"{RUNTIME}ContainerStatus", container),
    Step("stop the pod", f"{RUNTIME}StopPodSandbox", sandbox),
    Step("stop the pod again", f"{RUNTIME}StopPodSandbox", sandbox),
    Step("stopped pod", f"{RUNTIME}PodSandboxStatus", sandbox),
    Step("remove the pod", f"{RUNTIME}RemovePodSandbox", sandbox),
    Step("remove the pod again", f"{RUNTIME}RemovePodSandbox", sandbox),
    Step("removed pod", f"{RUNTIME}PodSandboxStatus", sandbox),
    *(
        Step(f"bytes that are no message: {name}", f"{RUNTIME}{name}", GARBAGE)
        for name in ("RunPodSandbox", "CreateContainer", "StopContainer", "ContainerStatus")
    ),
    Step("bytes that are no message: ImageStatus", f"{IMAGES}ImageStatus", GARBAGE),
    Step("method of a later version", f"{RUNTIME}CheckpointPod"),
    Step("unknown service", "/runtime.v2.RuntimeService/Version"),
)
"""In the order in which a pod lives."""


@dataclass(frozen=True)
class Answer:
    """What a step brought: OK with a message, or another code with its words."""

    step: str
    code: str
    message: Value


def play(channel: grpc.Channel, life: Life) -> list[Answer]:
    """Make all calls and return the answers, ids written as words."""
    found = []
    for step in SCRIPT:
        call: Callable[..., bytes] = channel.unary_unary(step.method)
        try:
            data = call(step.request if isinstance(step.request, bytes) else step.request(life), timeout=60)
        except grpc.RpcError as error:
            found.append(Answer(step.name, error.code().name, renamed(error.details() or "", _names(life))))
            continue
        if step.keep:
            setattr(life, step.keep, first_text(data))
        message = canonical(data, _names(life))
        found.append(Answer(step.name, "OK", shape(message) if step.is_measured else message))
    return found


def _names(life: Life) -> dict[str, str]:
    return {life.sandbox: "<sandbox>", life.container: "<container>", life.name: "<name>"}
