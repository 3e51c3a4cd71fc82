"""The messages: those of Koordinator by package and method, checked in as the .proto files say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.runtime_proxy import hooked_cri_pb2 as cri
from koordlet.runtime_proxy import runtime_hooks_pb2 as pb
from koordlet.runtime_proxy.hook_types import HOOK_SERVICE, HookType
from koordlet.runtime_proxy.pod_store import hook_resources

ROOT = Path(__file__).parents[3]


def test_every_hook_is_a_method_of_the_service() -> None:
    service = pb.DESCRIPTOR.services_by_name["RuntimeHookService"]
    assert service.full_name == HOOK_SERVICE == "runtime.v1alpha1.RuntimeHookService"
    assert {f"/{HOOK_SERVICE}/{method.name}" for method in service.methods} == {hook.method for hook in HookType}
    for hook in HookType:
        method = service.methods_by_name[f"{hook.value}Hook"]
        assert method.input_type.name == ("PodSandboxHookRequest" if hook.is_of_pod else "ContainerResourceHookRequest")


@given(st.binary(max_size=40), st.integers(min_value=20, max_value=500))
def test_fields_of_later_versions_survive(data: bytes, number: int) -> None:
    tag = number << 3 | 2
    unknown = bytes((tag & 0x7F | 0x80, tag >> 7, len(data))) + data
    known = cri.LinuxContainerResources(cpu_shares=2).SerializeToString()
    message = cri.LinuxContainerResources.FromString(known + unknown)
    message.cpu_shares = 512
    assert message.SerializeToString() == cri.LinuxContainerResources(cpu_shares=512).SerializeToString() + unknown
    assert hook_resources(message).SerializeToString() == message.SerializeToString()


def test_resources_of_hooks_are_those_of_the_cri() -> None:
    fields = [(field.name, field.number, field.type) for field in pb.LinuxContainerResources.DESCRIPTOR.fields]
    assert fields == [(each.name, each.number, each.type) for each in cri.LinuxContainerResources.DESCRIPTOR.fields]


@pytest.mark.parametrize("name", ["hooked_cri.proto", "runtime_hooks.proto"])
def test_the_messages_are_what_the_file_says(name: str, tmp_path: Path) -> None:
    from grpc_tools import protoc

    arguments = ["protoc", f"-I{ROOT / 'api/proto'}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main([*arguments, name]) == 0
    for made in tmp_path.iterdir():
        kept = ROOT / "koordlet/runtime_proxy" / made.name
        assert kept.read_text() == made.read_text(), "run `make proto`"
