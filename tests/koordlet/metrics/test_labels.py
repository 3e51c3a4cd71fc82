"""Labels that tell a cgroup."""

from prometheus_client.core import GaugeMetricFamily

from api.frame import CgroupInfo, CgroupKind
from api.verdicts import CgroupRef
from koordlet.metrics.labels import CGROUP_LABELS, distinct, identity_of, identity_of_ref, short, without_empty


def test_identity_of_containers_pods_and_others() -> None:
    app = CgroupInfo(1, "/p/a", "n", kind=CgroupKind.CONTAINER, namespace="shop", pod="web", container="app")
    assert identity_of(app) == ("shop", "web", "app", "")
    inner = CgroupInfo(2, "/p/a/x", "n", kind=CgroupKind.PLAIN, namespace="shop", pod="web", container="")
    assert identity_of(inner) == ("shop", "web", "", "/p/a/x")
    assert identity_of(CgroupInfo(3, "/unit", "n", container="x")) == ("", "", "", "/unit")
    assert identity_of_ref(CgroupRef("n", "shop", "web", "app"), "/p/a") == ("shop", "web", "app", "")
    assert identity_of_ref(CgroupRef(), "[kernel]") == ("", "", "", "[kernel]")


def test_a_second_instance_has_its_path() -> None:
    app = ("shop", "web", "app", "")
    assert distinct(app, "/p/b", {app}) == ("shop", "web", "app", "/p/b")
    assert distinct(app, "/p/b", set()) == app


def test_long_paths_are_cut_and_stay_different() -> None:
    one, other = ("/" + "d" * 6000 + end for end in ("/a", "/b"))
    assert len(short(one)) < 520
    assert short(one) != short(other)
    assert short("/short") == "/short"


def test_empty_labels_of_pods_are_left_out() -> None:
    family = GaugeMetricFamily("x", "text", labels=CGROUP_LABELS)
    family.add_metric(["", "", "", "/unit", "unit", ""], 1.0)
    (sample,) = without_empty(family).samples
    assert sample.labels == {"cgroup": "/unit", "name": "unit", "qos": ""}
