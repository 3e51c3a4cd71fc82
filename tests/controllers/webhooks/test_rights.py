"""A mutated pod may do what its author asked for, and nothing more; a patch that takes rights away is applied."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.kube.patching import strategic
from controllers.webhooks.rules.rights import USUAL_CAPABILITIES, added_rights
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, Document, pod, profile, review

FUZZED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def patched(document: Document, patch: Document) -> tuple[bool, str, Document | None]:
    found = review("/mutate-pod", ClusterView(profiles=[profile("given", patch=patch)]), obj=document)
    return found.allowed, found.message, found.object


def of_main(**security: Any) -> Document:
    return {"spec": {"containers": [{"name": "main", "securityContext": security}]}}


@pytest.mark.parametrize(
    ("patch", "right"),
    [
        pytest.param(of_main(privileged=True), "main: privileged", id="privileged"),
        pytest.param(of_main(capabilities={"add": ["SYS_ADMIN"]}), "capability SYS_ADMIN", id="capability"),
        pytest.param(of_main(capabilities={"add": ["CAP_BPF"]}), "capability BPF", id="prefixed-capability"),
        pytest.param(of_main(procMount="Unmasked"), "procMount", id="proc"),
        pytest.param(of_main(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions", id="selinux"),
        pytest.param(of_main(appArmorProfile={"type": "Unconfined"}), "AppArmor", id="apparmor"),
        pytest.param(of_main(windowsOptions={"hostProcess": True}), "windowsOptions", id="windows"),
        pytest.param({"spec": {"hostNetwork": True}}, "hostNetwork", id="network"),
        pytest.param({"spec": {"hostPID": True}}, "hostPID", id="processes"),
        pytest.param({"spec": {"hostIPC": True}}, "hostIPC", id="ipc"),
        pytest.param({"spec": {"shareProcessNamespace": True}}, "shared processes", id="shared-processes"),
        pytest.param({"spec": {"serviceAccountName": "admin"}}, "service account admin", id="account"),
        pytest.param({"spec": {"serviceAccount": "admin"}}, "service account admin", id="old-account"),
        pytest.param({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "hostPath /", id="host-path"),
        pytest.param({"spec": {"volumes": [{"name": "v", "nfs": {"server": "s"}}]}}, "volume of nfs", id="nfs"),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}},
            "token for the API server",
            id="token",
        ),
        pytest.param(
            {"spec": {"securityContext": {"sysctls": [{"name": "kernel.sem", "value": "1"}]}}}, "sysctl", id="sysctl"
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 1, "hostPort": 22}]}]}},
            "hostPort 22",
            id="host-port",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "side", "securityContext": {"privileged": True}}]}},
            "side: privileged",
            id="new-container",
        ),
        pytest.param(
            {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}}},
            "AppArmor unconfined",
            id="annotation",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}]}},
            "requests of the node to 10.0.0.1",
            id="probe-of-another-host",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "lifecycle": {"preStop": {"tcpSocket": {"host": "h"}}}}]}},
            "requests of the node to h",
            id="hook-of-another-host",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {"signerName": "s"}}]}}]}},
            "certificate of s",
            id="certificate",
        ),
    ],
)
def test_a_profile_that_adds_rights_is_refused_by_name(patch: Document, right: str) -> None:
    allowed, message, _ = patched(pod(), patch)
    assert not allowed
    assert right in message
    assert "profile given" in message


def test_an_annotation_of_the_profile_itself_adds_none_either() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/main"
    view = ClusterView(profiles=[profile("given", annotations={key: "unconfined"})])
    assert "AppArmor" in review("/mutate-pod", view, obj=pod()).message


def of_mount(**fields: Any) -> Document:
    return {"spec": {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/log", **fields}]}]}}


RESTRICTED = {
    "hostUsers": False,
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "i",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("patch", "right"),
    [
        pytest.param({"spec": {"hostUsers": None}}, "users of the node", id="users"),
        pytest.param({"spec": {"automountServiceAccountToken": True}}, "token of its service account", id="token"),
        pytest.param({"spec": {"securityContext": None}}, "runs as root", id="context"),
        pytest.param({"spec": {"securityContext": {"runAsUser": 1001}}}, "user 1001", id="another-user"),
        pytest.param({"spec": {"securityContext": {"fsGroup": 5}}}, "group 5", id="group"),
        pytest.param(
            {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}, "any system call", id="seccomp"
        ),
        pytest.param(of_main(capabilities={"drop": ["NET_RAW"]}), "capability CHOWN", id="capabilities"),
        pytest.param(of_main(allowPrivilegeEscalation=True), "gains privileges", id="escalation"),
        pytest.param(of_main(readOnlyRootFilesystem=False), "writes to its root", id="root-file-system"),
        pytest.param({"spec": {"containers": [{"name": "side", "image": "i"}]}}, "side: capability CHOWN", id="side"),
    ],
)
def test_a_restriction_stays(patch: Document, right: str) -> None:
    document = pod()
    document["spec"] = copy.deepcopy(RESTRICTED)
    allowed, message, _ = patched(document, patch)
    assert not allowed
    assert right in message


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {key: RESTRICTED[key] for key in ("hostUsers", "securityContext")}}, id="of-the-pod"),
        pytest.param({"spec": RESTRICTED}, id="everything"),
        pytest.param({"spec": {"containers": [{"name": "side", "image": "i"}]}}, id="a-container-like-the-others"),
        pytest.param({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, id="a-volume-of-its-own"),
        pytest.param({"spec": {"tolerations": [{"operator": "Exists"}], "hostname": "h"}}, id="no-right-at-all"),
    ],
)
def test_what_takes_rights_away_or_needs_none_is_applied(patch: Document) -> None:
    allowed, message, stored = patched(pod(), patch)
    assert allowed, message
    assert stored is not None
    assert stored != pod()


NARROW = {
    "runtimeClassName": "gvisor",
    "securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "i",
            "securityContext": {
                "runAsGroup": 1000,
                "supplementalGroupsPolicy": "Strict",
                "seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"},
                "appArmorProfile": {"type": "Localhost", "localhostProfile": "own"},
            },
            "volumeMounts": [{"mountPath": "/log", "name": "log", "readOnly": True, "subPath": "web"}],
        }
    ],
    "volumes": [
        {"name": "log", "hostPath": {"path": "/var/log"}},
        {"name": "shared", "nfs": {"server": "s", "path": "/web"}},
    ],
}
"""Rights that are less than the whole of their kind."""


@pytest.mark.parametrize(
    ("patch", "right"),
    [
        pytest.param({"spec": {"runtimeClassName": None}}, "another runtime than gvisor", id="no-sandbox"),
        pytest.param({"spec": {"runtimeClassName": "runc"}}, "another runtime than gvisor", id="another-runtime"),
        pytest.param(of_main(runAsGroup=None), "main: group 0", id="group-of-root"),
        pytest.param(of_main(supplementalGroupsPolicy="Merge"), "groups of its image", id="groups-of-the-image"),
        pytest.param(of_main(seccompProfile=None), "seccomp of the runtime", id="own-calls"),
        pytest.param(of_main(appArmorProfile={"type": "RuntimeDefault"}), "AppArmor of the runtime", id="own-apparmor"),
        pytest.param(of_mount(readOnly=False), "writes hostPath /var/log, web", id="writing"),
        pytest.param(of_mount(subPath=None), "reads hostPath /var/log", id="more-of-a-path"),
        pytest.param(
            {"spec": {"initContainers": [{"name": "side", "volumeMounts": [{"mountPath": "/log", "name": "log"}]}]}},
            "side: writes hostPath /var/log",
            id="mount-of-a-new-container",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "shared", "nfs": {"path": "/"}}]}}, "volume of nfs", id="more-of-a-server"
        ),
    ],
)
def test_part_of_a_right_does_not_grow(patch: Document, right: str) -> None:
    document = {**pod(), "spec": NARROW}
    assert not patched(copy.deepcopy(document), patch)[0]
    assert right in "; ".join(added_rights(document, strategic(document, patch)))


def test_an_option_of_windows_of_the_pod_holds_beside_those_of_a_container() -> None:
    document = pod()
    document["spec"]["containers"][0]["securityContext"] = {"windowsOptions": {"runAsUserName": "u"}}
    allowed, message, _ = patched(document, {"spec": {"securityContext": {"windowsOptions": {"hostProcess": True}}}})
    assert not allowed
    assert "hostProcess" in message


def test_a_profile_confines_what_nothing_confined() -> None:
    document = pod()
    document["spec"]["containers"][0]["securityContext"] = {"appArmorProfile": {"type": "Unconfined"}}
    confined = of_main(
        appArmorProfile={"type": "Localhost", "localhostProfile": "p"},
        seccompProfile={"type": "Localhost", "localhostProfile": "p"},
    )
    allowed, message, _ = patched(document, {"spec": {**confined["spec"], "runtimeClassName": "gvisor"}})
    assert allowed, message


def test_what_the_author_asked_for_stays() -> None:
    document = pod(None, {"name": "main", "securityContext": {"privileged": True}}, hostNetwork=True)
    allowed, message, stored = patched(document, {"spec": {"hostname": "h"}})
    assert allowed, message
    assert stored is not None
    assert stored["spec"]["hostNetwork"] is True
    assert added_rights(document, stored) == ()


def sometimes(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.fixed_dictionaries({}, optional=fields)


flags = st.sampled_from([True, False, None])
names = st.sampled_from(["ALL", "NET_RAW", "SYS_ADMIN", "CAP_BPF", "chown"])
profiles_of_calls = st.sampled_from(
    [None, {"type": "RuntimeDefault"}, {"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "p"}]
)
contexts = sometimes(
    runAsUser=st.sampled_from([0, 1000, 1001, None]),
    runAsNonRoot=flags,
    seccompProfile=profiles_of_calls,
    privileged=flags,
    allowPrivilegeEscalation=flags,
    readOnlyRootFilesystem=flags,
    procMount=st.sampled_from(["Default", "Unmasked", None]),
    capabilities=sometimes(add=st.lists(names, max_size=2), drop=st.lists(names, max_size=2)),
    **{"$patch": st.sampled_from(["replace", "delete"])},
)
containers = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "side"])},
    optional={
        "securityContext": contexts | st.none(),
        "ports": st.lists(st.fixed_dictionaries({"containerPort": st.just(1), "hostPort": st.sampled_from([0, 22])})),
        "$patch": st.sampled_from(["replace", "delete"]),
    },
)
volumes = st.sampled_from(
    [
        {"name": "v", "hostPath": {"path": "/"}},
        {"name": "v", "hostPath": {"path": "/etc"}},
        {"name": "v", "emptyDir": {}},
        {"name": "w", "projected": {"sources": [{"serviceAccountToken": {"audience": "a"}}]}},
        {"name": "v", "$patch": "delete"},
    ]
)
specs = sometimes(
    hostNetwork=flags,
    hostPID=flags,
    hostIPC=flags,
    hostUsers=flags,
    serviceAccountName=st.sampled_from(["", "default", "admin", None]),
    automountServiceAccountToken=flags,
    securityContext=contexts | st.none(),
    containers=st.lists(containers, max_size=2, unique_by=lambda item: item["name"]),
    initContainers=st.lists(containers, max_size=1),
    volumes=st.lists(volumes, max_size=2, unique_by=lambda item: item["name"]),
    **{"$patch": st.sampled_from(["replace"]), "$retainKeys": st.just(["containers", "hostNetwork"])},
)


def plain(value: Any) -> Any:
    """A document without directives, as a pod's author writes it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None and not key.startswith("$")}
    return [plain(item) for item in value] if isinstance(value, list) else value


def held(document: Document) -> Iterator[str]:
    """What the pod may do, told apart from the code under test: the few rights that need no thought."""
    spec = document.get("spec") or {}
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    yield f"account {spec.get('serviceAccountName') or 'default'}"
    yield from (f"path {one['hostPath']['path']}" for one in spec.get("volumes") or () if one.get("hostPath"))
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        context = container.get("securityContext") or {}
        if context.get("privileged"):
            yield "privileged"
        for name in (context.get("capabilities") or {}).get("add") or ():
            if name.upper().removeprefix("CAP_") not in USUAL_CAPABILITIES:
                yield f"capability {name.upper().removeprefix('CAP_')}"
        yield from (f"port {port['hostPort']}" for port in container.get("ports") or () if port.get("hostPort"))


@FUZZED
@given(asked=specs, patches=st.lists(specs, min_size=1, max_size=2))
def test_no_profile_raises_rights(asked: Document, patches: list[Document]) -> None:
    document = {**pod(), "spec": {"containers": [{"name": "main", "image": "i"}], **plain(asked)}}
    before = copy.deepcopy(document)
    view = ClusterView(
        profiles=[profile(f"p{at}", patch={"spec": patch}) for at, patch in enumerate(patches)],
        priority_classes=PRIORITY_CLASSES,
    )
    found = review("/mutate-pod", view, obj=document)
    assert document == before
    if not found.allowed:
        assert "profile p" in found.message
        return
    assert found.object is not None
    more = set(held(found.object)) - set(held(before))
    privileged = "privileged" in set(held(before))
    assert not more or (privileged and all(right.startswith("capability") for right in more)), more
    assert added_rights(before, found.object) == () or len(patches) > 1
