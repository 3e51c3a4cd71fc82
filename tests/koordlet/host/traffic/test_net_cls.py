"""net_cls.classid in a tree of plain files, which copies it to a new cgroup as the kernel does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.host.traffic.classes import ROOT
from koordlet.host.traffic.net_cls import classid_of, clear_classids, is_foreign, set_classids

PODS, BEST_EFFORT, CULPRIT = ROOT | 0x10, ROOT | 0x11, ROOT | 0x12
FOREIGN = 0x10001


class Tree:
    """/pods with /pods/be, which has /pods/be/a and /pods/be/b, and with /pods/ls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in ("", "pods", "pods/be", "pods/be/a", "pods/be/b", "pods/ls"):
            self.make(path)

    def make(self, path: str) -> Path:
        """As css_online: a new cgroup has its parent's mark."""
        directory = self.root / path
        directory.mkdir(exist_ok=True)
        mark = classid_of(directory.parent) if path else 0
        (directory / "net_cls.classid").write_text(f"{mark or 0}\n")
        return directory

    def marks(self) -> dict[str, int]:
        files = sorted(self.root.rglob("net_cls.classid"))
        return {str(file.parent.relative_to(self.root)): int(file.read_text()) for file in files}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_mark_reaches_all_below_but_those_who_have_their_own(tree: Tree) -> None:
    set_classids(tree.root / "pods/be", BEST_EFFORT)
    set_classids(tree.root / "pods", PODS)
    assert tree.marks() == {
        ".": 0,
        "pods": PODS,
        "pods/ls": PODS,
        "pods/be": BEST_EFFORT,
        "pods/be/a": BEST_EFFORT,
        "pods/be/b": BEST_EFFORT,
    }


def test_what_loses_its_mark_gets_that_of_its_parent(tree: Tree) -> None:
    set_classids(tree.root / "pods", PODS)
    set_classids(tree.root / "pods/be/a", CULPRIT)
    clear_classids(tree.root / "pods/be/a", CULPRIT)
    assert set(tree.marks().values()) == {0, PODS}
    clear_classids(tree.root / "pods", PODS)
    assert set(tree.marks().values()) == {0}


def test_foreign_classids_stay(tree: Tree) -> None:
    (tree.root / "pods/be/net_cls.classid").write_text(str(FOREIGN))
    before = tree.marks()
    assert is_foreign(FOREIGN) and not is_foreign(0) and not is_foreign(PODS)
    set_classids(tree.root / "pods", PODS)
    assert tree.marks()["pods/be"] == FOREIGN
    assert tree.marks()["pods/be/a"] == 0
    clear_classids(tree.root / "pods", PODS)
    set_classids(tree.root / "pods/be", BEST_EFFORT)
    assert tree.marks() == before


def test_a_cgroup_that_is_gone_needs_nothing(tree: Tree) -> None:
    set_classids(tree.root / "gone", PODS)
    clear_classids(tree.root / "gone", PODS)
    assert classid_of(tree.root / "gone") is None


TARGETS = ("pods", "pods/be", "pods/be/a", "pods/ls", "pods/be/late", "pods/late")


@given(st.lists(st.tuples(st.sampled_from(TARGETS), st.booleans()), max_size=20))
def test_whatever_the_order_each_cgroup_has_the_mark_of_its_nearest_class_and_all_goes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]
) -> None:
    tree = Tree(tmp_path_factory.mktemp("marks"))
    held: dict[str, int] = {}
    for target, wanted in steps:
        if not (tree.root / target).exists():
            tree.make(target)
        mark = ROOT | (0x10 + TARGETS.index(target))
        if wanted:
            held[target] = mark
            set_classids(tree.root / target, mark)
        else:
            held.pop(target, None)
            clear_classids(tree.root / target, mark)
        for path, found in tree.marks().items():
            above = [path, *map(str, Path(path).parents)]
            assert found == next((held[one] for one in above if one in held), 0), (path, held)
    for target in list(held):
        clear_classids(tree.root / target, held[target])
    assert set(tree.marks().values()) == {0}
