"""Fake kernel files: a dict in the test becomes a tree below a directory."""

from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[str, "str | Tree"]


def make_tree(root: Path, tree: Tree) -> Path:
    """Write nested dicts as directories and strings as files; returns `root`."""
    for name, content in tree.items():
        path = root / name.lstrip("/")
        if isinstance(content, str):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        else:
            path.mkdir(parents=True, exist_ok=True)
            make_tree(path, content)
    return root
