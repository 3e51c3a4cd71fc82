"""Workload of a cgroup: a name that outlives its pods, so that baselines do as well. Pure.

The owner of a pod is derived from the pod's name, by the patterns of the Kubernetes controllers: the files of the
node have no more.
"""

import re
from dataclasses import dataclass

from api.frame import CgroupKind
from koordlet.identity.cgroup_names import CgroupName

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""Suffix of generated names (k8s.io/apimachinery, util/rand: no vowels, no 0, 1 and 3)."""
_HASH = "[4-9bcdf]{6,10}"
"""Pod template hash: decimal digits through the same table, which leaves these letters."""
_OWNERS = (
    ("Deployment", re.compile(rf"^(.+)-{_HASH}-{_RANDOM}$")),
    ("CronJob", re.compile(rf"^(.+)-\d{{8,10}}(?:-\d{{1,6}})?-{_RANDOM}$")),
    ("Job", re.compile(rf"^(.+)-\d{{1,6}}-{_RANDOM}$")),
    ("Generated", re.compile(rf"^(.+)-{_RANDOM}$")),
    ("StatefulSet", re.compile(r"^(.+)-\d{1,6}$")),
)
"""Kind and shape, the first that fits. DaemonSets, ReplicaSets and plain Jobs make names alike: `Generated`."""

_UUID = "[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}"
_RUNS = re.compile(rf"{_UUID}|[0-9a-f]{{16,}}|(?<![0-9a-zA-Z])(?=[a-f]*[0-9])[0-9a-f]{{8,}}(?![0-9a-zA-Z])|[0-9]+")
_INSTANCE = re.compile(r"^([^@]+)@.+(\.[a-z]+)$")
_NUMBERED_UNITS = (".scope", ".slice")


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """Facts of one container from the runtime's state files; empty where these lack them."""

    name: str = ""
    """Name given by the user."""
    image: str = ""
    service: str = ""
    """Of docker compose or swarm: project and service."""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    """Its name within the pod."""
    is_sandbox: bool = False
    """The pod's own (pause) container."""

    @property
    def full_name(self) -> str:
        """`namespace/pod/container` in Kubernetes, the given name elsewhere; empty if unknown."""
        if self.is_sandbox:
            return f"{self.namespace}/{self.pod} (sandbox)"
        in_pod = "/".join(part for part in (self.namespace, self.pod, self.container) if part)
        return in_pod if self.pod else self.name


def workload_of(path: str, name: CgroupName, facts: ContainerFacts | None = None) -> str:
    """Return `Kind/namespace/name` of the owner; else service, image, unit, or the path without what changes.

    Empty for what has no workload of its own or is not known: the root, pods' parents, containers without facts.
    """
    if name.kind is CgroupKind.CONTAINER:
        return _of_container(facts) if facts else ""
    if name.kind is CgroupKind.UNIT:
        return generalise(name.name) if name.name.endswith(_NUMBERED_UNITS) else _INSTANCE.sub(r"\1@\2", name.name)
    return generalise(path) if name.kind is CgroupKind.PLAIN and not name.pod_uid else ""


def _of_container(facts: ContainerFacts) -> str:
    if facts.pod:
        kind, owner = owner_of(facts.pod)
        return f"{kind}/{facts.namespace}/{owner}"
    return facts.service or _repository(facts.image) or facts.name


def owner_of(pod: str) -> tuple[str, str]:
    """Return kind and name of a pod's owner by the shape of the pod's name; a `Pod` owns itself."""
    for kind, shape in _OWNERS:
        found = shape.match(pod)
        if found:
            return kind, found.group(1)
    return "Pod", pod


def _repository(image: str) -> str:
    """The image without tag and digest, empty for a bare digest: a new version is the same workload."""
    repository = image.partition("@")[0]
    host, slash, rest = repository.rpartition("/")
    repository = host + slash + rest.partition(":")[0]
    return "" if repository in ("", "sha256") or re.fullmatch("[0-9a-f]{64}", repository) else repository


def generalise(text: str) -> str:
    """Return the text with `*` for each run of digits, long hexadecimal number or UUID."""
    return _RUNS.sub("*", text)
