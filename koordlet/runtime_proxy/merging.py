"""Merging of a hook's answer into a CRI request, as Koordinator's proxy does.

A hook server answers with the whole state it wants: what it was asked about, with its changes. Fields that are equal to
what it was asked about are therefore left alone, so that an update of one field does not write the others again.
"""

import re
from collections.abc import Mapping, MutableMapping

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb

_POSITIVE = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
_CPUSETS = ("cpuset_cpus", "cpuset_mems")
_CPU_LIST = re.compile(r"(\d+(-\d+)?(,\d+(-\d+)?)*)?\n?")
_MAX_OOM_SCORE_ADJ = 1000


class AnswerMalformed(Exception):
    """A hook's answer that no runtime could carry out; the message names the field."""


def check_pod_answer(answer: pb.PodSandboxHookResponse) -> None:
    """Raise AnswerMalformed where the answer cannot be merged."""
    _check_cgroup_parent("cgroup_parent", answer.cgroup_parent)
    _check_resources("resources", answer.resources)


def check_container_answer(answer: pb.ContainerResourceHookResponse) -> None:
    """Raise AnswerMalformed where the answer cannot be merged."""
    _check_cgroup_parent("pod_cgroup_parent", answer.pod_cgroup_parent)
    _check_resources("container_resources", answer.container_resources)
    for name, value in answer.container_envs.items():
        if not name or "=" in name or "\0" in name + value:
            raise AnswerMalformed(f"container_envs: {name[:64]!r} is no environment variable")


def merge_pod(asked: pb.PodSandboxHookRequest, answer: pb.PodSandboxHookResponse, config: cri.PodSandboxConfig) -> bool:
    """Merge the answer into the configuration and into `asked`; return whether the configuration changed."""
    changed = merge_map(asked.labels, answer.labels, config.labels)
    changed |= merge_map(asked.annotations, answer.annotations, config.annotations)
    if answer.cgroup_parent and answer.cgroup_parent != asked.cgroup_parent:
        asked.cgroup_parent = config.linux.cgroup_parent = answer.cgroup_parent
        changed = True
    wanted = resource_changes(asked.resources, answer.resources) if answer.HasField("resources") else {}
    unified = _map_changes(asked.resources.unified, answer.resources.unified)
    if wanted or unified:
        _assign(config.linux.resources, asked.resources, wanted, unified)
        changed = True
    return changed


def merge_container(
    asked: pb.ContainerResourceHookRequest,
    answer: pb.ContainerResourceHookResponse,
    request: cri.CreateContainerRequest | cri.UpdateContainerResourcesRequest | None,
) -> bool:
    """Merge the answer into the request, which may have no place for it, and into `asked`.

    Returns whether the request changed.
    """
    changed = False
    create = request if isinstance(request, cri.CreateContainerRequest) else None
    annotations = create.config.annotations if create else getattr(request, "annotations", {})
    changed |= merge_map(asked.container_annotations, answer.container_annotations, annotations)
    if answer.pod_cgroup_parent and answer.pod_cgroup_parent != asked.pod_cgroup_parent:
        asked.pod_cgroup_parent = answer.pod_cgroup_parent
        if create:
            create.sandbox_config.linux.cgroup_parent = answer.pod_cgroup_parent
            changed = True
    if answer.HasField("container_resources"):
        wanted = resource_changes(asked.container_resources, answer.container_resources)
        unified = _map_changes(asked.container_resources.unified, answer.container_resources.unified)
        if wanted or unified:
            _assign(None if request is None else _resources(request), asked.container_resources, wanted, unified)
            changed = True
    if answer.container_envs and dict(answer.container_envs) != dict(asked.container_envs):
        if create:
            merge_envs(asked.container_envs, answer.container_envs, create.config)
            changed = True
        asked.container_envs.clear()
        asked.container_envs.update(answer.container_envs)
    return changed and request is not None


def merge_map(asked: MutableMapping[str, str], answer: Mapping[str, str], target: MutableMapping[str, str]) -> bool:
    """Set the keys whose value differs from what was asked; keys that the answer lacks stay."""
    changes = _map_changes(asked, answer)
    asked.update(changes)
    target.update(changes)
    return bool(changes)


def resource_changes(asked: pb.LinuxContainerResources, answer: pb.LinuxContainerResources) -> dict[str, int | str]:
    """Return the fields that the answer replaces: quota unless 0, cpusets always, other amounts above 0, and
    oom_score_adj within its range."""
    changes: dict[str, int | str] = {}
    for field in _POSITIVE:
        if getattr(answer, field) > 0:
            changes[field] = getattr(answer, field)
    if answer.cpu_quota != 0:
        changes["cpu_quota"] = answer.cpu_quota
    if abs(answer.oom_score_adj) <= _MAX_OOM_SCORE_ADJ:
        changes["oom_score_adj"] = answer.oom_score_adj
    for field in _CPUSETS:
        changes[field] = getattr(answer, field)
    return {field: value for field, value in changes.items() if value != getattr(asked, field)}


def merge_update(stored: pb.LinuxContainerResources, update: pb.LinuxContainerResources) -> None:
    """Apply an update of the kubelet to the stored resources; it cannot clear fields, nor change oom_score_adj."""
    for field in (*_POSITIVE, *_CPUSETS):
        if value := getattr(update, field):
            setattr(stored, field, value)
    if update.cpu_quota != 0:
        stored.cpu_quota = update.cpu_quota
    stored.unified.update(update.unified)


def merge_envs(asked: Mapping[str, str], answer: Mapping[str, str], config: cri.ContainerConfig) -> None:
    """Replace the environment by the answer's: kept variables keep their place and bytes, new ones follow by name."""
    kept = [env for env in config.envs if env.key in answer]
    present = {env.key for env in kept}
    for env in kept:
        if answer[env.key] != asked.get(env.key):
            env.value = answer[env.key].encode()
    added = [cri.KeyValue(key=key, value=answer[key].encode()) for key in sorted(answer.keys() - present)]
    envs = [*kept, *added]
    copies = [cri.KeyValue.FromString(env.SerializeToString()) for env in envs]
    del config.envs[:]
    config.envs.extend(copies)


def env_map(config: cri.ContainerConfig) -> dict[str, str]:
    """Return the environment as hooks see it; bytes that are not UTF-8 are replaced."""
    return {env.key: env.value.decode(errors="replace") for env in config.envs}


def _map_changes(asked: Mapping[str, str], answer: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in answer.items() if key not in asked or asked[key] != value}


def _resources(
    request: cri.CreateContainerRequest | cri.UpdateContainerResourcesRequest,
) -> cri.LinuxContainerResources:
    return request.config.linux.resources if isinstance(request, cri.CreateContainerRequest) else request.linux


def _assign(
    target: cri.LinuxContainerResources | None,
    asked: pb.LinuxContainerResources,
    changes: Mapping[str, int | str],
    unified: Mapping[str, str],
) -> None:
    for message in (asked,) if target is None else (asked, target):
        for field, value in changes.items():
            setattr(message, field, value)
        message.unified.update(unified)


def _check_cgroup_parent(field: str, parent: str) -> None:
    if "\0" in parent or ".." in parent.split("/"):
        raise AnswerMalformed(f"{field}: {parent[:128]!r} is no path of a cgroup")


def _check_resources(field: str, resources: pb.LinuxContainerResources) -> None:
    for name in _CPUSETS:
        if not _CPU_LIST.fullmatch(getattr(resources, name)):
            raise AnswerMalformed(f"{field}.{name}: {getattr(resources, name)[:64]!r} is no list such as 0-3,8")
    if resources.cpu_quota < -1:
        raise AnswerMalformed(f"{field}.cpu_quota: {resources.cpu_quota} is below -1")
    for key in resources.unified:
        if "/" in key or key.startswith("."):
            raise AnswerMalformed(f"{field}.unified: {key[:64]!r} is no cgroup file")
