"""Record what a real node answers, trimmed to what the agent reads, for the tests of this folder.

python -m tests.koordlet.kubelet.record --endpoint https://NODE:10250 --ca CA --token FILE --node NAME --cri SOCKET \\
    --pod-resources SOCKET FOLDER
"""

import argparse
import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from koordlet.kubelet import cri_pb2 as cri
from koordlet.kubelet import pod_resources_pb2 as resources
from koordlet.kubelet.cri import SERVICE, open_channel
from koordlet.kubelet.http_client import KubeletClient
from koordlet.kubelet.pod_resources import METHOD
from koordlet.kubelet.settings import KubeletSettings

_CONTAINER_KEYS = ("name", "image", "command", "resources", "restartPolicy", "targetContainerName")
_SPEC_KEYS = ("nodeName", "priority", "priorityClassName", "hostNetwork", "restartPolicy", "resources", "overhead")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def trimmed(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without what names people, places and secrets: environment, volumes, applied manifests."""
    meta, spec = pod["metadata"], pod["spec"]
    meta.pop("managedFields", None)
    meta.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
    kept = {key: spec[key] for key in _SPEC_KEYS if key in spec}
    for key in _CONTAINERS:
        if key in spec:
            kept[key] = [{name: each[name] for name in _CONTAINER_KEYS if name in each} for each in spec[key]]
    return {**pod, "spec": kept}


def record_runtime(socket: Path) -> dict[str, Any]:
    """Return the runtime's answers; of a status only where the cgroup is."""
    channel = open_channel(socket)

    def ask(method: str, request: Message, answer: type[Message]) -> Any:
        call = channel.unary_unary(f"{SERVICE}{method}", type(request).SerializeToString, answer.FromString)
        return call(request, timeout=10.0)

    def document(message: Message) -> dict[str, Any]:
        return MessageToDict(message, preserving_proto_field_name=True)

    listed = ask("ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse)
    statuses = {}
    for each in listed.containers:
        request = cri.ContainerStatusRequest(container_id=each.id, verbose=True)
        info = json.loads(ask("ContainerStatus", request, cri.ContainerStatusResponse).info["info"])
        place = info["runtimeSpec"]["linux"]["cgroupsPath"]
        statuses[each.id] = {"info": {"info": json.dumps({"runtimeSpec": {"linux": {"cgroupsPath": place}}})}}
    sandboxes = ask("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
    return {
        "Version": document(ask("Version", cri.VersionRequest(version="v1"), cri.VersionResponse)),
        "RuntimeConfig": document(ask("RuntimeConfig", cri.RuntimeConfigRequest(), cri.RuntimeConfigResponse)),
        "ListPodSandbox": document(sandboxes),
        "ListContainers": document(listed),
        "ContainerStatus": statuses,
    }


def record_pod_resources(socket: Path) -> dict[str, Any]:
    """Return the kubelet's answer."""
    request = resources.ListPodResourcesRequest()
    answer = resources.ListPodResourcesResponse
    call = open_channel(socket).unary_unary(METHOD, type(request).SerializeToString, answer.FromString)
    return MessageToDict(call(request, timeout=10.0), preserving_proto_field_name=True)


def main() -> None:
    """Write one file for each source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--endpoint", "--ca", "--token", "--node", "--cri", "--pod-resources"):
        parser.add_argument(name, required=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    settings = KubeletSettings(endpoint=given.endpoint, ca_file=given.ca, token_file=given.token)
    kubelet = KubeletClient(settings, given.node)
    pods = json.loads(kubelet.pods())
    answers = {
        "pods.json": {**pods, "items": [trimmed(each) for each in pods["items"]]},
        "configz.json": json.loads(kubelet.configz()),
        "containerd.json": {
            **record_runtime(Path(given.cri)),
            "PodResources": record_pod_resources(Path(given.pod_resources)),
        },
    }
    for name, answer in answers.items():
        (given.folder / name).write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
