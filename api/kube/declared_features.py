"""Features of kubelets that a pod needs; nodes declare those that they have in `status.declaredFeatures`.

Source: component-helpers/nodedeclaredfeatures of Kubernetes 1.36, as far as features decide where pods may go.
"""

from itertools import chain

from api.kube.objects import PodSpec

RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"


def needed_features(spec: PodSpec) -> tuple[str, ...]:
    """Return the features that the node of a pod must declare, sorted."""
    found = []
    if any(
        rule.get("action") == "RestartAllContainers"
        for container in chain(spec.containers, spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        found.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        found.append(HOST_NETWORK_USERS)
    return tuple(found)
