"""Resources of a pod rewritten: cpu and memory to what a class uses, older names to present ones, GPU shorthands."""

from typing import Any

import msgspec

from api.kube.meta import Quantity
from api.kube.resources import CPU, MEMORY, QuantityError, Resources, parse_quantity, parse_resources
from api.protocol import (
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    BATCH_CPU,
    BATCH_MEMORY,
    DEPRECATED_RESOURCES,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MID_CPU,
    MID_MEMORY,
)
from api.qos import PriorityBand
from controllers.webhooks.review import Document
from controllers.webhooks.rules.documents import child

TRANSLATED = {
    PriorityBand.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityBand.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
}
"""Names of cpu and memory in a band; prod keeps the native ones, free has none."""

_GPU_NAMES = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)


def containers_of(pod: Document) -> list[Document]:
    """Return a pod's init containers and containers."""
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def translate(pod: Document, band: PriorityBand) -> None:
    """Rename cpu and memory, in place, to the resources of a band: cpu becomes whole millicores.

    Requests that are missing take their limit's value. Raises QuantityError.
    """
    names = TRANSLATED.get(band)
    if names is None:
        return
    for container in containers_of(pod):
        resources = container.get("resources")
        if not isinstance(resources, dict):
            continue
        for kind in ("requests", "limits"):
            _rename(resources.get(kind), names)
        for name in names.values():
            limit = (resources.get("limits") or {}).get(name)
            if limit is not None and name not in (resources.get("requests") or {}):
                child(resources, "requests")[name] = limit
    # The API server refuses a pod whose overhead is not its RuntimeClass's; without one it refuses any overhead.
    spec = pod.get("spec") or {}
    if not spec.get("runtimeClassName"):
        _rename(spec.get("overhead"), names)


def _rename(amounts: Any, names: dict[str, str]) -> None:
    if not isinstance(amounts, dict):
        return
    for native, extended in names.items():
        if native in amounts:
            amount = amounts.pop(native)
            amounts[extended] = str(parse_quantity(amount, 1000)) if native == CPU else whole(amount)


def whole(amount: str | float) -> str:
    """Return a quantity as it stands if it is a whole number, else rounded up. Raises QuantityError."""
    rounded = parse_quantity(amount)
    return str(amount) if isinstance(amount, str) and rounded * 1000 == parse_quantity(amount, 1000) else str(rounded)


def rename_deprecated(pod: Document) -> None:
    """Rename resources of older spelling, in place; an amount under the present name stays."""
    for container in containers_of(pod):
        for kind in ("requests", "limits"):
            amounts = (container.get("resources") or {}).get(kind)
            if isinstance(amounts, dict):
                for old in DEPRECATED_RESOURCES.keys() & amounts.keys():
                    amounts.setdefault(DEPRECATED_RESOURCES[old], amounts.pop(old))


def expand_gpus(pod: Document) -> None:
    """Write the shorthand `koordinator.sh/gpu` out as core and memory ratio, and state how many GPUs are shared.

    In place, containers only. Raises QuantityError.
    """
    for container in (pod.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        asked: Document = resources.get("requests") or {}
        if not any(name in amounts for name in _GPU_NAMES for amounts in (asked, resources.get("limits") or {})):
            continue
        requests, limits = child(resources, "requests"), child(resources, "limits")
        if GPU in requests:
            share = str(parse_quantity(requests.pop(GPU)))
            limits.pop(GPU, None)
            for amounts in (requests, limits):
                amounts[GPU_CORE] = amounts[GPU_MEMORY_RATIO] = share
        if GPU_SHARED not in requests:
            percent = parse_quantity(requests.get(GPU_MEMORY_RATIO, requests.get(GPU_CORE, 0)))
            cards = percent // 100 if percent > 100 and percent % 100 == 0 else 1
            requests[GPU_SHARED] = limits[GPU_SHARED] = str(cards)


def extended_resource_spec(pod: Document) -> str | None:
    """Return the text of the annotation for runtimes that do not see a pod's spec: its batch resources by container.

    None for a pod without such resources.
    """
    containers: Document = {}
    for container in (pod.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        stated = {
            kind: found
            for kind in ("requests", "limits")
            if (
                found := {
                    name: (resources.get(kind) or {})[name] for name in _BATCH if name in (resources.get(kind) or {})
                }
            )
        }
        if stated:
            containers[container["name"]] = stated
    return msgspec.json.encode({"containers": containers}, order="sorted").decode() if containers else None


_BATCH = (BATCH_CPU, BATCH_MEMORY)


class _Amounts(msgspec.Struct):
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)
    limits: dict[str, Quantity] = msgspec.field(default_factory=dict)


class _ExtendedResourceSpec(msgspec.Struct):
    containers: dict[str, _Amounts] = msgspec.field(default_factory=dict)


def stated_amounts(text: str) -> dict[str, tuple[Resources, Resources]] | None:
    """Return requests and limits by container that the annotation states; None for a text that is none."""
    try:
        spec = msgspec.json.decode(text, type=_ExtendedResourceSpec)
        return {
            name: (parse_resources(amounts.requests), parse_resources(amounts.limits))
            for name, amounts in spec.containers.items()
        }
    except (msgspec.DecodeError, QuantityError, RecursionError):
        return None


def state_extended_resources(pod: Document) -> None:
    """Set the annotation of `extended_resource_spec`, in place, or remove one that nothing stands for."""
    metadata = child(pod, "metadata")
    text = extended_resource_spec(pod)
    annotations = metadata.get("annotations")
    if text is not None:
        stated = annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC) if isinstance(annotations, dict) else None
        if stated is not None and stated_amounts(stated) == stated_amounts(text):
            # The API server writes amounts of a pod its own way (1k for 1000), so texts differ on a second pass.
            return
        child(metadata, "annotations")[ANNOTATION_EXTENDED_RESOURCE_SPEC] = text
    elif isinstance(annotations, dict) and ANNOTATION_EXTENDED_RESOURCE_SPEC in annotations:
        del annotations[ANNOTATION_EXTENDED_RESOURCE_SPEC]
