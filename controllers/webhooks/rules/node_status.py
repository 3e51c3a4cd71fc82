"""Amplified allocatable of a node: set again on each status that its kubelet reports."""

import math

import msgspec

from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY, format_resources, parse_resources
from api.protocol import ANNOTATION_NODE_AMPLIFICATION, ANNOTATION_NODE_RAW_ALLOCATABLE
from controllers.webhooks.review import ADMITTED, Answer, Document, Request
from controllers.webhooks.rules.documents import child, converted, copied
from controllers.webhooks.view import ClusterView

AMPLIFIED = (CPU, MEMORY)
LARGEST_RATIO = 100.0
"""Ratio beyond which an annotation is taken for a mistake."""


def mutate_node_status(request: Request, _view: ClusterView) -> Answer:
    """Amplify allocatable cpu and memory by the node's ratios, and keep what the kubelet reported in an annotation.

    A kubelet reports what it has, so an allocatable that differs from the stored one is the node's own; one that is the
    same has been amplified before. A status is never refused: a ratio that cannot be read is a warning.
    """
    if request.operation != "UPDATE" or request.object is None:
        return ADMITTED
    node = converted(request.object, Node)
    annotations = node.metadata.annotations
    document = copied(request.object)
    if not annotations.get(ANNOTATION_NODE_AMPLIFICATION):
        if ANNOTATION_NODE_RAW_ALLOCATABLE not in annotations:
            return ADMITTED
        del document["metadata"]["annotations"][ANNOTATION_NODE_RAW_ALLOCATABLE]
        return Answer(object=document)
    try:
        ratios = _ratios(annotations[ANNOTATION_NODE_AMPLIFICATION])
        raw = _raw_allocatable(node, converted(request.old_object or {}, Node))
        _amplify(document, raw, ratios)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        return Answer(warnings=(f"node {request.name} is not amplified: {error}",))
    return Answer(object=document) if raw else ADMITTED


def _ratios(text: str) -> dict[str, float]:
    ratios = msgspec.json.decode(text, type=dict[str, float])
    for name, ratio in ratios.items():
        if not math.isfinite(ratio) or not 0 <= ratio <= LARGEST_RATIO:
            raise ValueError(f"{ANNOTATION_NODE_AMPLIFICATION} gives {name} the ratio {ratio}")
    return ratios


def _raw_allocatable(node: Node, old: Node) -> dict[str, str]:
    reported = {name: str(node.status.allocatable[name]) for name in AMPLIFIED if name in node.status.allocatable}
    stored = {name: str(old.status.allocatable[name]) for name in AMPLIFIED if name in old.status.allocatable}
    text = node.metadata.annotations.get(ANNOTATION_NODE_RAW_ALLOCATABLE)
    if text is None or parse_resources(reported) != parse_resources(stored):
        return reported
    return msgspec.json.decode(text, type=dict[str, str])


def _amplify(document: Document, raw: dict[str, str], ratios: dict[str, float]) -> None:
    amounts = parse_resources(raw)
    allocatable = child(child(document, "status"), "allocatable")
    for name in AMPLIFIED:
        ratio = ratios.get(name, 1.0)
        if ratio > 1.0 and name in amounts:
            allocatable.update(format_resources({name: math.trunc(amounts[name] * ratio)}))
        elif name in raw:
            # A ratio that was taken away leaves nothing amplified.
            allocatable[name] = raw[name]
    text = msgspec.json.encode(raw, order="sorted").decode()
    child(child(document, "metadata"), "annotations")[ANNOTATION_NODE_RAW_ALLOCATABLE] = text
