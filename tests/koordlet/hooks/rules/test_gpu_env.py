"""GPUs for containers."""

import json
from typing import Any

import pytest

from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    LABEL_GPU_ISOLATION_PROVIDER,
)
from koordlet.hooks.decide import HookRules
from koordlet.hooks.resources import NOTHING, Mount
from koordlet.hooks.rules.gpu_env import GpuEnv
from koordlet.identity.pods import PodFacts
from tests.koordlet.hooks.facts import container, node, pod

RULE = GpuEnv()
HAMI = {LABEL_GPU_ISOLATION_PROVIDER: "HAMi-core"}


def with_gpus(*minors: int, labels: dict[str, str] | None = None, **resources: Any) -> PodFacts:
    amounts = {GPU_CORE: "50", GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: "50"} | resources.pop("resources", {})
    given = {"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}
    return pod(annotations={ANNOTATION_DEVICE_ALLOCATED: json.dumps(given)}, labels=labels or {}, **resources)


def test_containers_see_the_cards_that_were_given() -> None:
    of = with_gpus(1, 3)
    assert RULE.container(of, of.containers[0], node()).env == {"NVIDIA_VISIBLE_DEVICES": "1,3"}


def test_a_share_is_isolated() -> None:
    of = with_gpus(0, labels=HAMI)
    found = RULE.container(of, of.containers[0], node())
    assert found.env == {
        "NVIDIA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_MEMORY_LIMIT": str(8 << 30),
        "CUDA_DEVICE_SM_LIMIT": "50",
        "LD_PRELOAD": "/usr/local/vgpu/libvgpu.so",
    }
    assert found.mounts == (
        Mount("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/libvgpu.so"),
        Mount("/tmp/vgpulock", "/tmp/vgpulock"),
    )


def test_a_whole_card_is_not_isolated() -> None:
    of = with_gpus(0, labels=HAMI, resources={GPU_MEMORY_RATIO: "100"})
    assert list(RULE.container(of, of.containers[0], node()).env) == ["NVIDIA_VISIBLE_DEVICES"]


def test_only_containers_that_request_gpus_get_them() -> None:
    wants, other = container("wants", requests={GPU: 100}), container("other", requests={"cpu": 100})
    given = with_gpus(0).annotations
    of = pod("", wants, other, annotations=given)
    assert RULE.container(of, wants, node()).env
    assert RULE.container(of, other, node()) == NOTHING
    thief = pod("", other, annotations=given)
    assert RULE.container(thief, other, node()) == NOTHING


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="torn"),
        pytest.param('{"gpu": [{"minor": -1}]}', id="negative"),
        pytest.param('{"gpu": [{"minor": "0; rm"}]}', id="text"),
        pytest.param(json.dumps({"gpu": [{"minor": 1}] * 65}), id="too-many"),
    ],
)
def test_unreadable_allocations_are_reported(text: str) -> None:
    of = pod(annotations={ANNOTATION_DEVICE_ALLOCATED: text})
    decided = HookRules({"GPUEnvInject": True}).container(of, of.containers[0], node())
    assert decided.resources == NOTHING
    assert ANNOTATION_DEVICE_ALLOCATED in decided.problems["default/web/main/gpu_env"]


def test_the_gate_is_closed() -> None:
    of = with_gpus(0)
    assert HookRules().container(of, of.containers[0], node()).resources == NOTHING
