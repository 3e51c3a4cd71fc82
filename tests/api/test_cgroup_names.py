"""Display names are different for each cgroup, and owners are said where there are any."""

from hypothesis import given
from hypothesis import strategies as st

from api.cgroup_names import DisplayNames, display_names, owner_of
from api.frame import CgroupInfo, CgroupKind


def container(path: str, container_id: str, name: str = "shop/web-0/app", workload: str = "") -> CgroupInfo:
    return CgroupInfo(
        1,
        path,
        name,
        kind=CgroupKind.CONTAINER,
        container_id=container_id * 64,
        namespace="shop",
        pod="web-0",
        workload=workload,
    )


def test_two_containers_of_one_name_are_told_apart_by_their_ids() -> None:
    names = display_names([container("/a", "a"), container("/b", "b"), container("/c", "c", "shop/web-0/proxy")])
    assert names == {
        "/a": "shop/web-0/app [aaaaaaaaaaaa]",
        "/b": "shop/web-0/app [bbbbbbbbbbbb]",
        "/c": "shop/web-0/proxy",
    }


def test_a_container_keeps_its_name_from_an_earlier_instance() -> None:
    names = display_names([container("/b", "b")], [container("/a", "a"), container("/b", "b")])
    assert names == {"/a": "shop/web-0/app [aaaaaaaaaaaa]", "/b": "shop/web-0/app"}


def test_other_cgroups_of_one_name_are_told_apart_by_their_paths() -> None:
    web, other = CgroupInfo(1, "/a/web", "web"), CgroupInfo(2, "/b/web", "web")
    assert display_names([web, other]) == {"/a/web": "/a/web", "/b/web": "/b/web"}
    assert display_names([web], [other]) == {"/a/web": "/a/web", "/b/web": "/b/web"}


def test_owner() -> None:
    assert owner_of(container("/a", "a", workload="StatefulSet/shop/web")) == "StatefulSet web"
    assert owner_of(container("/a", "a", workload="shop/web-0")) == ""
    assert owner_of(CgroupInfo(1, "/x", "x", workload="a/b/c")) == ""


@given(
    st.lists(
        st.tuples(st.sampled_from(("came", "went", "forgot")), st.integers(0, 11), st.sampled_from(("web", "db"))),
        max_size=40,
    )
)
def test_names_as_cgroups_come_and_go_are_those_of_all_at_once(steps: list[tuple[str, int, str]]) -> None:
    names, living, gone = DisplayNames(), dict[int, CgroupInfo](), dict[int, CgroupInfo]()
    for number, (step, place, name) in enumerate(steps):
        path, identity = f"/p{place // 3}", 100 * place + number
        if step == "came":
            if any(info.path == path for info in living.values()):
                continue
            kind = CgroupKind.CONTAINER if place % 2 else CgroupKind.PLAIN
            living[identity] = CgroupInfo(identity, path, name, kind=kind)
            names.came(living[identity])
        elif step == "went" and living:
            info = living.pop(sorted(living)[place % len(living)])
            gone.pop(info.id, None)
            gone[info.id] = info
            names.went(info)
        elif step == "forgot" and gone:
            oldest = next(iter(gone))
            names.forgot(gone.pop(oldest))
    expected = display_names(living.values(), gone.values())
    assert {path: names.name_of(path) for path in expected} == expected
    assert names.name_of("/never") == "/never"
