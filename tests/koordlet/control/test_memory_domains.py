"""Memory domains: shared ones, their free memory, and no reads of members while there is plenty."""

from pathlib import Path

import pytest

from api.qos import QoSClass
from koordlet.control.memory_domains import open_memory_domains, shared_ancestors
from koordlet.host.cgroups.memory import reclaimable_bytes
from koordlet.strategies.view import Group, MemoryDomain
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.strategies.views import app

GIB = 1 << 30
STAT_V1 = (
    "cache 9\nrss 1\ntotal_rss 5\ntotal_inactive_file 300\ntotal_active_file 200\ntotal_dirty 40\ntotal_writeback 10\n"
)
STAT_V1 += "total_inactive_anon 70\n"
STAT_V2 = "anon 5\nfile 9\ninactive_file 300\nactive_file 200\nfile_dirty 40\nfile_writeback 10\ninactive_anon 70\n"
GROUPS = [
    app("web", QoSClass.LS, path="/shop/web"),
    app("part", QoSClass.LS, path="/shop/web/part"),
    app("scan", QoSClass.BE, path="/shop/low/scan"),
    app("sort", QoSClass.BE, path="/shop/low/sort"),
    app("far", QoSClass.BE, path="/far/away"),
]


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path / "host", request.param)
    for path in ("/shop", "/far", "/shop/low", *(group.path for group in GROUPS)):
        made.make(path)
        use(made, path, 100)
        made.file(path, "memory.stat").write_text(STAT_V1 if made.version == 1 else STAT_V2)
    return made


def use(host: FakeHost, path: str, amount: int) -> None:
    name = "memory.usage_in_bytes" if host.version == 1 else "memory.current"
    host.file(path, name).write_text(f"{amount}\n")


def limit(host: FakeHost, path: str, amount: int) -> None:
    name = "memory.limit_in_bytes" if host.version == 1 else "memory.max"
    host.file(path, name).write_text(f"{amount}\n")


def domains(host: FakeHost, groups: list[Group], free: int = GIB) -> list[MemoryDomain]:
    sharing = open_memory_domains(host.tree)
    assert sharing is not None
    assert sharing.v1 == (host.version == 1)
    return list(sharing.domains(groups, GIB, free))


@pytest.mark.parametrize("stat", [STAT_V1, STAT_V2], ids=["v1", "v2"])
@pytest.mark.parametrize(("swap", "amount"), [(False, 450), (True, 520)])
def test_what_can_be_taken_is_clean_page_cache_and_with_swap_cold_memory(stat: str, swap: bool, amount: int) -> None:
    assert reclaimable_bytes(stat.encode(), swap=swap) == amount


def test_only_cgroups_above_both_kinds_of_work_are_shared() -> None:
    assert shared_ancestors(GROUPS) == ["/shop"]
    assert shared_ancestors(GROUPS[2:]) == []


def test_the_node_and_limited_cgroups_are_domains(host: FakeHost) -> None:
    assert [domain.path for domain in domains(host, GROUPS)] == ["/"]
    limit(host, "/shop", 4096)
    use(host, "/shop", 3000)
    node, shop = domains(host, GROUPS)
    assert (node.limit_bytes, node.free_bytes, dict(node.usage_bytes)) == (GIB, GIB, {})
    assert (shop.limit_bytes, shop.free_bytes) == (4096, 1096)
    assert dict(shop.usage_bytes) == {"/shop/web": 100, "/shop/low/scan": 100, "/shop/low/sort": 100}
    assert dict(shop.reclaimable_bytes) == {"/shop/low/scan": 450, "/shop/low/sort": 450}


def test_members_are_not_read_while_there_is_plenty(host: FakeHost) -> None:
    limit(host, "/shop", 4096)
    use(host, "/shop", 2000)
    assert [dict(domain.usage_bytes) for domain in domains(host, GROUPS)] == [{}, {}]


def test_a_short_node_is_looked_at_everywhere(host: FakeHost) -> None:
    (node,) = domains(host, GROUPS, free=1000)
    assert set(node.usage_bytes) == {"/shop/web", "/shop/low/scan", "/shop/low/sort", "/far/away"}


def test_a_cgroup_that_is_gone_has_no_figures(host: FakeHost) -> None:
    gone = [*GROUPS, app("gone", QoSClass.BE, path="/shop/gone")]
    limit(host, "/shop", 4096)
    use(host, "/shop", 5000)
    _, shop = domains(host, gone)
    assert shop.free_bytes == 0
    assert "/shop/gone" not in shop.usage_bytes
    assert "/shop/gone" not in shop.reclaimable_bytes
