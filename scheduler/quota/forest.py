"""All quota trees, and the quota and tree of each pod."""

from collections.abc import Iterator
from dataclasses import dataclass

from api.kube.resources import Resources, subtract
from scheduler.quota.tree import DEFAULT, PodUse, QuotaSpec, QuotaTree


@dataclass(frozen=True, slots=True)
class Member:
    """A pod with what decides its quota."""

    namespace: str
    label: str
    """The quota it names; empty when it names none."""
    use: PodUse


class QuotaForest:
    """Quota trees by id; the tree "" shares the cluster. Pods follow when quotas come and go."""

    def __init__(
        self,
        *,
        multiple_trees: bool = False,
        scale_minimums: bool = True,
        guarantee_usage: bool = False,
        default_quota: bool = True,
        open_namespace: str = "",
    ) -> None:
        self._multiple = multiple_trees
        self._scale = scale_minimums
        self._guarantee = guarantee_usage
        self._default = default_quota
        self._open_namespace = open_namespace
        """Namespace of the administrators' quotas, which pods anywhere may name unless the quota lists namespaces."""
        self.trees: dict[str, QuotaTree] = {"": self._tree({})}
        self._specs: dict[str, QuotaSpec] = {}
        self._by_namespace: dict[str, str] = {}
        self._members: dict[str, Member] = {}
        self._tree_of: dict[str, str] = {}
        """Tree id by pod."""
        self._cluster: Resources = {}
        self._moved = False
        """Quotas changed, so pods may belong elsewhere."""

    def specs(self) -> dict[str, QuotaSpec]:
        """Every quota by name."""
        return self._specs

    def apply(self, spec: QuotaSpec) -> None:
        """Add a quota or change it."""
        known = self._specs.get(spec.name)
        if known == spec:
            return
        if known is not None and known.tree != spec.tree:
            self._home(known).remove(known.name)
        self._specs[spec.name] = spec
        self._home(spec).apply(spec)
        self._after_change()

    def remove(self, name: str) -> None:
        """Forget a quota; its pods fall to whichever quota takes them then."""
        spec = self._specs.pop(name, None)
        if spec is not None:
            self._home(spec).remove(name)
            self._after_change()

    def set_cluster(self, allocatable: Resources) -> None:
        """Set the sum of what all nodes offer."""
        self._cluster = dict(allocatable)
        self._share_totals()

    def put(self, key: str, member: Member) -> None:
        """Add a pod or replace what is known of it."""
        self._members[key] = member
        self._settle(key, member)

    def assign(self, key: str, assigned: bool) -> None:
        """A known pod took its place or gave it back."""
        member = self._members[key]
        if member.use.assigned == assigned:
            return
        use = PodUse(member.use.request, assigned, member.use.preemptible)
        self._members[key] = Member(member.namespace, member.label, use)
        tree = self._tree_of.get(key)
        if tree is not None:
            self.trees[tree].set_assigned(key, assigned)

    def drop(self, key: str) -> None:
        """Forget a pod; an unknown one is no error."""
        self._members.pop(key, None)
        tree = self._tree_of.pop(key, None)
        if tree is not None:
            self.trees[tree].drop_pod(key)

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def of(self, key: str) -> tuple[QuotaTree, str, PodUse] | None:
        """Tree, quota and use of a pod; None for a pod without a quota."""
        if self._moved:
            self._settle_all()
        tree = self._tree_of.get(key)
        known = self.trees[tree].pod(key) if tree is not None else None
        return (self.trees[tree], *known) if tree is not None and known is not None else None

    def resolve(self, namespace: str, label: str) -> str | None:
        """The quota of a pod: by label where the quota consents, the namespace's own, by the lists, the default."""
        named = self._specs.get(label) if label else None
        if named is not None and self.consents(named, namespace):
            return label
        own = self._specs.get(namespace)
        if own is not None and own.namespace == namespace:
            return namespace
        listed = self._by_namespace.get(namespace)
        if listed is not None:
            return listed
        return DEFAULT if self._default else None

    def consents(self, spec: QuotaSpec, namespace: str) -> bool:
        """Return whether pods and child quotas of a namespace may name the quota."""
        if spec.namespace in ("", namespace) or namespace in spec.namespaces:
            return True
        return spec.namespace == self._open_namespace and not spec.namespaces

    def quotas(self) -> Iterator[tuple[QuotaTree, QuotaSpec]]:
        """Every quota with its tree, settled."""
        if self._moved:
            self._settle_all()
        for spec in self._specs.values():
            yield self._home(spec), spec

    def _home(self, spec: QuotaSpec) -> QuotaTree:
        identity = self._tree_id(spec)
        tree = self.trees.get(identity)
        if tree is None:
            tree = self.trees[identity] = self._tree({})
        return tree

    def _tree_id(self, spec: QuotaSpec) -> str:
        return spec.tree if self._multiple else ""

    def _tree(self, total: Resources) -> QuotaTree:
        return QuotaTree(total, scale_minimums=self._scale, guarantee_usage=self._guarantee)

    def _after_change(self) -> None:
        self._by_namespace = {
            namespace: name
            for name in sorted(self._specs)
            for namespace in self._specs[name].namespaces
            if self._specs[name].namespace in ("", self._open_namespace, namespace)
        }
        self._moved = True
        self._share_totals()

    def _share_totals(self) -> None:
        """Each separate tree has its root's total; the default tree the cluster, less trees set apart."""
        rest = dict(self._cluster)
        totals: dict[str, Resources] = {}
        for spec in self._specs.values():
            identity = self._tree_id(spec)
            if spec.total is not None and identity:
                totals[identity] = dict(spec.total)
                if spec.apart:
                    rest = {name: max(amount, 0) for name, amount in subtract(rest, spec.total).items()}
        for identity, tree in self.trees.items():
            tree.set_total(totals.get(identity, {}) if identity else rest)

    def _settle_all(self) -> None:
        self._moved = False
        for key, member in self._members.items():
            self._settle(key, member)

    def _settle(self, key: str, member: Member) -> None:
        name = self.resolve(member.namespace, member.label)
        spec = self._specs.get(name) if name else None
        wanted = self._tree_id(spec) if spec is not None else "" if name else None
        before = self._tree_of.get(key)
        if before is not None and before != wanted:
            self.trees[before].drop_pod(key)
            del self._tree_of[key]
        if wanted is not None and name is not None:
            self.trees[wanted].put_pod(key, name, member.use)
            self._tree_of[key] = wanted
