"""Pods on their way in: colocation profiles, resources of their class, GPU shorthands, nodes of their quota tree."""

from collections.abc import Sequence

from api.crds import ClusterColocationProfile, ElasticQuotaProfile
from api.kube.objects import Pod
from api.kube.resources import QuantityError
from api.protocol import ANNOTATION_SKIP_UPDATE_RESOURCES, LABEL_QUOTA_NAME, LABEL_QUOTA_TREE_ID
from api.qos import PriorityBand
from controllers.webhooks.review import ADMITTED, Answer, Document, RefusedError, Request
from controllers.webhooks.rules import profiles, translation
from controllers.webhooks.rules.documents import child, converted, copied
from controllers.webhooks.rules.pod_class import effective_band
from controllers.webhooks.view import ClusterView


def mutate_pod(request: Request, view: ClusterView) -> Answer:
    """Answer the creation of a pod; other operations are admitted as they are. A second pass changes nothing."""
    if request.operation != "CREATE" or request.object is None or request.sub_resource:
        return ADMITTED
    pod = converted(request.object, Pod)
    document = copied(request.object)
    warnings: list[str] = []
    labels = view.namespace_labels(request.namespace)
    matched = [profile for profile in view.profiles if profiles.selects(profile, pod.metadata.labels, labels)]
    for profile in matched:
        if profiles.drawn(profile, view.draw):
            document = profiles.apply(profile, document, view.priority_classes)
    try:
        _rewrite_resources(document, translated=_translates(matched), warnings=warnings)
        if view.multi_quota_tree:
            _keep_on_tree(document, request.namespace, view)
    except QuantityError as error:
        raise RefusedError(f"resources: {error}", 400) from error
    return Answer(object=document, warnings=tuple(warnings))


def _translates(matched: Sequence[ClusterColocationProfile]) -> bool:
    return bool(matched) and not any(
        ANNOTATION_SKIP_UPDATE_RESOURCES in profile.metadata.annotations for profile in matched
    )


def _rewrite_resources(document: Document, *, translated: bool, warnings: list[str]) -> None:
    translation.rename_deprecated(document)
    if translated:
        band = effective_band(converted(document, Pod))
        translation.translate(document, band)
        if band in (PriorityBand.BATCH, PriorityBand.MID) and (document.get("spec") or {}).get("resources"):
            warnings.append(f"spec.resources is not translated to the resources of {band}: state them by container")
    translation.expand_gpus(document)
    translation.state_extended_resources(document)


def _keep_on_tree(document: Document, namespace: str, view: ClusterView) -> None:
    pod = converted(document, Pod)
    quota = view.quotas.get(pod.metadata.labels.get(LABEL_QUOTA_NAME) or namespace)
    if quota is None or not quota.tree:
        return
    found = next((item for item in view.quota_profiles if _tree_of(item) == quota.tree), None)
    requirements = [] if found is None else _requirements(found)
    if not requirements:
        return
    place = child(child(child(document, "spec"), "affinity"), "nodeAffinity")
    required = child(place, "requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Document] = required.get("nodeSelectorTerms") or [{}]
    for term in terms:
        present = list(term.get("matchExpressions") or ())
        term["matchExpressions"] = present + [item for item in requirements if item not in present]
    required["nodeSelectorTerms"] = terms


def _tree_of(profile: ElasticQuotaProfile) -> str:
    return profile.metadata.labels.get(LABEL_QUOTA_TREE_ID, "")


def _requirements(profile: ElasticQuotaProfile) -> list[Document]:
    selector = profile.spec.node_selector
    wanted: list[Document] = [
        {"key": key, "operator": "In", "values": [value]} for key, value in sorted(selector.match_labels.items())
    ]
    for item in selector.match_expressions:
        requirement: Document = {"key": item.key, "operator": item.operator}
        wanted.append(requirement | ({"values": list(item.values)} if item.values else {}))
    return wanted
