import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.plugins.page_cache import (
    PageCache,
    PageCacheBlock,
    PageCacheClass,
    PageCacheSettings,
    cache_bytes,
)
from tests.koordlet.strategies.views import pod, settings, view

_BLOCK = {
    "enable": False,
    "pageCacheEnable": None,
    "pageCacheLimitPercent": None,
    "pageCacheLimitSize": None,
    "pageCacheReclaimSync": False,
}
DEFAULTS = {
    "gates": {"CgroupReconcile": False},
    "settings": {
        "lsrClass": {"memoryQOS": _BLOCK},
        "lsClass": {"memoryQOS": _BLOCK},
        "beClass": {"memoryQOS": _BLOCK},
        "systemClass": {"memoryQOS": _BLOCK},
    },
}


@pytest.mark.parametrize(
    ("block", "limit", "size"),
    [
        pytest.param(PageCacheBlock(page_cache_limit_percent=20), 1000, 200, id="percent"),
        pytest.param(
            PageCacheBlock(page_cache_limit_size=300, page_cache_limit_percent=20), 1000, 300, id="size-first"
        ),
        pytest.param(PageCacheBlock(page_cache_limit_size=3000), 1000, 1000, id="capped-by-the-limit"),
        pytest.param(PageCacheBlock(page_cache_limit_size=3000), None, 3000, id="size-without-limit"),
        pytest.param(PageCacheBlock(page_cache_limit_percent=20), None, None, id="percent-of-nothing"),
        pytest.param(PageCacheBlock(page_cache_limit_size=0), 1000, None, id="zero-is-off"),
        pytest.param(PageCacheBlock(), 1000, None, id="unset"),
    ],
)
def test_size(block: PageCacheBlock, limit: int | None, size: int | None) -> None:
    assert cache_bytes(block, limit) == size


@pytest.mark.parametrize(
    ("qos", "annotation", "values"),
    [
        pytest.param("BE", "", ["400", "0", "1"], id="class"),
        pytest.param("BE", '{"pageCacheReclaimSync": true}', ["400", "1", "1"], id="waiting-for-reclaim"),
        pytest.param("BE", '{"pageCacheEnable": false}', [], id="overridden"),
        pytest.param("LS", '{"pageCacheLimitSize": 50}', ["50", "0", "1"], id="pod-alone"),
        pytest.param("LS", "", [], id="class-is-off"),
        pytest.param("LSR", '{"pageCacheLimitSize": 50}', [], id="protected"),
    ],
)
def test_pods(qos: str, annotation: str, values: list[str]) -> None:
    one = pod(
        "a",
        QoSClass(qos),
        limits={"memory": 1000, "kubernetes.io/batch-memory": 1000},
        annotations={"koordinator.sh/memoryQOS": annotation} if annotation else {},
    )
    be_class = PageCacheClass(memory_qos=PageCacheBlock(enable=True, page_cache_limit_percent=40))
    strategy = PageCache(PageCacheSettings(be_class=be_class), {"CgroupReconcile": True})
    wanted = settings(strategy.decide(view(one), 0.0))
    knobs = [Knob.PAGE_CACHE_LIMIT, Knob.PAGE_CACHE_SYNC, Knob.PAGE_CACHE_ENABLE]
    assert [wanted[one.path, knob] for knob in knobs if wanted] == values
