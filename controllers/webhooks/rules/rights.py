"""What a change of a pod lets it do that it could not do before. Decides from documents alone.

A pod's author was asked for its rights; profiles are applied after that, and must add none. A field that is absent
counts as what the kubelet makes of it: the default service account, the usual capabilities, any system call.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from controllers.webhooks.review import Document

USUAL_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
        "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
    }
)  # fmt: skip
"""What runtimes give a container that drops nothing."""
_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_PLAIN_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Volumes that reach neither the node nor a server that the pod names itself."""
_PRIVILEGED = "privileged"
_ROOT = "runs as root"
_ALL_CALLS = "any system call"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""Annotations that the API server takes for a container's profile."""
_UNCONFINED = "AppArmor unconfined"
_OF_RUNTIME = "of the runtime"
_USERS = {"runAsUser": "user", "fsGroup": "group", "supplementalGroups": "groups"}
_CALLS = ("livenessProbe", "readinessProbe", "startupProbe", "postStart", "preStop")
"""Fields by which the node asks a server for a container; those of its life cycle stand in `lifecycle`."""


def added_rights(before: Document, after: Document) -> tuple[str, ...]:
    """Return what a pod, or a template, may do as `after` and may not as `before`, as short texts in order.

    A container that was not there may do what any other of the pod could.
    """
    spec_before, spec_after = _map(before.get("spec")), _map(after.get("spec"))
    added = set(_of_pod(spec_after)) - set(_of_pod(spec_before))
    added |= _of_annotations(after) - _of_annotations(before)
    # A class may be a sandbox; which is the stricter of two cannot be told.
    runtime = spec_before.get("runtimeClassName")
    if runtime and spec_after.get("runtimeClassName") != runtime:
        added.add(f"another runtime than {runtime}")
    had = _of_containers(spec_before)
    of_any = frozenset[str]().union(*had.values())
    for name, found in _of_containers(spec_after).items():
        known = had.get(name, of_any)
        added |= {f"container {name}: {right}" for right in found if not _is_covered(right, known)}
    return tuple(sorted(added))


def _is_covered(right: str, had: frozenset[str]) -> bool:
    """Return whether a container with the rights `had` could do it already."""
    if right in had or _PRIVILEGED in had:
        return True
    if right.startswith(("user ", "group ", "groups ")):
        return _ROOT in had
    if right.startswith("AppArmor "):
        return _UNCONFINED in had
    return right.startswith("seccomp ") and _ALL_CALLS in had


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (name for name in _HOST_NAMESPACES if spec.get(name))
    if spec.get("hostUsers") is not False:
        yield "users of the node"
    if spec.get("shareProcessNamespace"):
        yield "shared processes"
    yield f"service account {spec.get('serviceAccountName') or spec.get('serviceAccount') or 'default'}"
    if spec.get("automountServiceAccountToken") is not False:
        yield "token of its service account"
    for volume in _maps(spec.get("volumes")):
        yield from _of_volume(volume)
    for option in _maps(_map(spec.get("securityContext")).get("sysctls")):
        yield f"sysctl {option.get('name')}={option.get('value')}"


def _of_annotations(document: Document) -> frozenset[str]:
    annotations = _map(_map(document.get("metadata")).get("annotations"))
    return frozenset(
        f"AppArmor {value} by {name}"
        for name, value in annotations.items()
        if name.startswith(_APPARMOR) and value != "runtime/default"
    )


def _of_volume(volume: Mapping[str, Any]) -> Iterator[str]:
    for kind, source in volume.items():
        if kind == "name" or source is None:
            continue
        if kind == "hostPath":
            yield f"hostPath {_map(source).get('path')}"
        elif kind not in _PLAIN_VOLUMES:
            yield f"volume of {kind} {json.dumps(source, sort_keys=True)}"
        elif kind == "projected":
            for part in _maps(_map(source).get("sources")):
                if part.get("serviceAccountToken") is not None:
                    yield f"token for {_map(part['serviceAccountToken']).get('audience') or 'the API server'}"
                if part.get("podCertificate") is not None:
                    yield f"certificate of {_map(part['podCertificate']).get('signerName')}"


def _of_containers(spec: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    security = _map(spec.get("securityContext"))
    on_node = {
        volume.get("name"): _map(volume["hostPath"]).get("path")
        for volume in _maps(spec.get("volumes"))
        if volume.get("hostPath") is not None
    }
    found: dict[str, frozenset[str]] = {}
    for kind in _CONTAINER_LISTS:
        for container in _maps(spec.get(kind)):
            name = str(container.get("name"))
            rights = {*_of_container(container, security), *_of_mounts(container, on_node), *_of_calls(container)}
            found[name] = found.get(name, frozenset()) | rights
    return found


def _of_container(container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    """Rights of one container; `pod` is the security context of its pod, which holds where its own says nothing."""
    own = _map(container.get("securityContext"))
    effective = {**pod, **{name: value for name, value in own.items() if value is not None}}
    # Of these alone each field of the pod's holds where the container's is absent.
    effective["windowsOptions"] = {**_map(pod.get("windowsOptions")), **_map(own.get("windowsOptions"))}
    if own.get("privileged"):
        yield _PRIVILEGED
    yield from (f"capability {name}" for name in _capabilities(_map(own.get("capabilities"))))
    if own.get("allowPrivilegeEscalation") is not False:
        yield "gains privileges"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "writes to its root file system"
    if own.get("procMount") not in (None, "Default"):
        yield f"procMount {own['procMount']}"
    yield from _of_identity(effective)
    yield from _of_confinement(effective)
    for port in _maps(container.get("ports")):
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']}"


def _of_mounts(container: Mapping[str, Any], on_node: Mapping[Any, Any]) -> Iterator[str]:
    """Rights by mounts; `on_node` has the paths of volumes that are a path of the node, by name."""
    for mount in _maps(container.get("volumeMounts")):
        if mount.get("mountPropagation") == "Bidirectional":
            yield f"mounts for the node at {mount.get('mountPath')}"
        if mount.get("name") in on_node:
            below = mount.get("subPath") or mount.get("subPathExpr")
            path = f"{on_node[mount['name']]}{f', {below}' if below else ''}"
            yield f"reads hostPath {path}"
            if mount.get("readOnly") is not True:
                yield f"writes hostPath {path}"


def _of_calls(container: Mapping[str, Any]) -> Iterator[str]:
    """Servers that the node asks for a container: of the node's own network, where a host is named."""
    calls = {**container, **_map(container.get("lifecycle"))}
    for field in _CALLS:
        for kind in ("httpGet", "tcpSocket"):
            host = _map(_map(calls.get(field)).get(kind)).get("host")
            if host:
                yield f"requests of the node to {host}"


def _capabilities(stated: Mapping[str, Any]) -> frozenset[str]:
    added, dropped = (
        {str(name).upper().removeprefix("CAP_") for name in _items(stated.get(field))} for field in ("add", "drop")
    )
    kept = frozenset[str]() if "ALL" in dropped else USUAL_CAPABILITIES - dropped
    return kept | added


def _of_identity(context: Mapping[str, Any]) -> Iterator[str]:
    if context.get("runAsNonRoot") is not True and not context.get("runAsUser"):
        yield _ROOT
    # Without a group it is the image's, for the most part root's.
    yield f"group {context.get('runAsGroup') or 0}"
    if context.get("supplementalGroupsPolicy") != "Strict":
        yield "groups of its image"
    for field, word in _USERS.items():
        if context.get(field) is not None and (field != "runAsUser" or context[field]):
            yield f"{word} {context[field]}"
    for field in ("seLinuxOptions", "windowsOptions"):
        if context.get(field):
            yield f"{field} {context[field]}"


def _of_confinement(context: Mapping[str, Any]) -> Iterator[str]:
    """An AppArmor profile that is absent is the runtime's; a seccomp profile that is absent may be none."""
    seccomp, apparmor = _map(context.get("seccompProfile")), _map(context.get("appArmorProfile"))
    if seccomp.get("type") in (None, "Unconfined"):
        yield _ALL_CALLS
    else:
        # Which of two profiles is the stricter cannot be told, so neither replaces the other.
        yield f"seccomp {_profile(seccomp)}"
    if apparmor.get("type") == "Unconfined":
        yield _UNCONFINED
    else:
        yield f"AppArmor {_profile(apparmor)}"


def _profile(stated: Mapping[str, Any]) -> str:
    return f"{stated.get('localhostProfile')}" if stated.get("type") == "Localhost" else _OF_RUNTIME


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    return (item for item in _items(value) if isinstance(item, dict))
