"""A quota against the tree that it stands in.

The sum of children's minima stays within their parent's; maxima are free; only parents have children; a quota does not
turn into a parent or out of one; no pod uses a parent (`pod_validation.py`).
"""

from collections.abc import Iterator, Mapping, Sequence

from api.kube.resources import Resources, total
from controllers.webhooks.rules.quota_object import LABEL_IS_PARENT, LABEL_TREE_ID, RESERVED, ROOT, Quota, children_of


def own_refusals(quota: Quota) -> Iterator[str]:
    """Yield what is wrong with the amounts of one quota."""
    for place, amounts in (("max", quota.maximum), ("min", quota.minimum), ("shared weight", quota.weight)):
        for name, amount in amounts.items():
            if amount < 0:
                yield f"{place} of {name} is below 0"
    for name, amount in quota.minimum.items():
        if name not in quota.maximum:
            yield f"min has {name}, which max lacks"
        elif amount > quota.maximum[name]:
            yield f"min of {name} is above its max"
    for name in quota.strict_keys:
        if name in quota.used and quota.used[name] > quota.maximum.get(name, -1):
            yield f"max of {name} is below what is used, {quota.used[name]}"


def change_refusals(old: Quota, new: Quota) -> Iterator[str]:
    """Yield what an update must not change."""
    if old.is_parent != new.is_parent:
        yield f"label {LABEL_IS_PARENT} cannot be changed; delete the quota and create it again"
    if old.tree != new.tree:
        yield f"label {LABEL_TREE_ID} cannot be changed"


def tree_refusals(quota: Quota, quotas: Mapping[str, Quota]) -> Iterator[str]:
    """Yield what is wrong with a quota's place; `quotas` may hold its former state or lack it."""
    others = {name: other for name, other in quotas.items() if name != quota.name}
    for namespace in quota.namespaces:
        for other in others.values():
            if namespace in other.namespaces:
                yield f"namespace {namespace} belongs to quota {other.name}"
    children = children_of(others, quota.name)
    for child in children:
        if child.tree != quota.tree:
            yield f"its child {child.name} is of tree {child.tree!r}, it is of {quota.tree!r}"
    if quota.parent != ROOT:
        parent = others.get(quota.parent)
        if parent is None:
            yield f"parent {quota.parent} does not exist"
            return
        yield from _parent_refusals(quota, parent, others)
    if children:
        yield from _children_refusals(quota, children)


def _parent_refusals(quota: Quota, parent: Quota, others: Mapping[str, Quota]) -> Iterator[str]:
    if not parent.is_parent:
        yield f"parent {parent.name} lacks the label {LABEL_IS_PARENT}: only parents have children"
    if parent.tree != quota.tree:
        yield f"parent {parent.name} is of tree {parent.tree!r}, it is of {quota.tree!r}"
    if _is_below(parent, quota.name, others):
        yield f"parent {parent.name} is below it"
    yield from _key_refusals(quota, parent)
    if not (quota.forced or quota.is_root):
        siblings = [item for item in children_of(others, parent.name) if item.name != quota.name]
        yield from _sum_refusals([*siblings, quota], parent)


def _children_refusals(quota: Quota, children: Sequence[Quota]) -> Iterator[str]:
    if not quota.is_parent:
        yield f"it has children and lacks the label {LABEL_IS_PARENT}"
    for child in children:
        yield from _key_refusals(child, quota)
    if not (quota.forced or quota.is_root):
        yield from _sum_refusals(children, quota)


def _key_refusals(child: Quota, parent: Quota) -> Iterator[str]:
    if child.maximum.keys() != parent.maximum.keys():
        yield f"max of {child.name} and of its parent {parent.name} name different resources"
    missing = sorted(child.minimum.keys() - parent.minimum.keys())
    if missing:
        yield f"min of {child.name} has {', '.join(missing)}, which min of its parent {parent.name} lacks"


def _sum_refusals(children: Sequence[Quota], parent: Quota) -> Iterator[str]:
    wanted: Resources = total(child.minimum for child in children)
    for name, amount in wanted.items():
        own = parent.minimum.get(name, 0)
        if amount > own:
            yield f"min of the children of {parent.name} sums to {amount} {name}, above its own {own}"


def _is_below(quota: Quota, name: str, quotas: Mapping[str, Quota]) -> bool:
    seen: set[str] = set()
    at: Quota | None = quota
    while at is not None and at.name not in seen:
        if at.parent == name:
            return True
        seen.add(at.name)
        at = quotas.get(at.parent)
    return False


def deletion_refusals(quota: Quota, quotas: Mapping[str, Quota]) -> Iterator[str]:
    """Yield why a quota cannot be deleted, as far as its tree says."""
    if quota.name in RESERVED:
        yield f"quota {quota.name} is reserved"
    children = sorted(child.name for child in children_of(quotas, quota.name))
    if children:
        yield f"quota {quota.name} has children: {', '.join(children[:3])}{' ...' if len(children) > 3 else ''}"
