"""Nodes that hold the image score by size and spread."""

from scheduler.plugins.imagelocality import ImageLocality, normalized_image
from tests.schedobjects import engine, node, pod, totals

MIB = 1024 * 1024


def test_size_counts_between_the_thresholds_and_by_spread() -> None:
    image = {"names": ["app:1"], "sizeBytes": 600 * MIB}
    made = engine([node("has", images=[image]), node("lacks")], kinds={"imagelocality": ImageLocality})
    # 600 MiB on one of two nodes counts 300 MiB: (300-23)*100/(1000-23)
    assert totals(made, pod("p")) == {"has": 28, "lacks": 0}


def test_an_untagged_name_means_latest() -> None:
    assert normalized_image("registry:5000/app") == "registry:5000/app:latest"
    assert normalized_image("app") == "app:latest"
    assert normalized_image("app:1") == "app:1"
