"""Verdicts survive the wire whole, and the checked-in messages are what the .proto file says."""

from pathlib import Path

import msgspec
import pytest

from api.plugin import Unsupported
from api.verdicts import CgroupRef, Culprit, How, Severity, Verdict, VerdictState
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.broadcast import StreamMessage
from koordlet.serving.status import AgentStatus, Capability, capabilities
from koordlet.serving.wire import event_message, status_message, stream_message_of, verdict_message, verdict_of
from tests.verdicts import make_verdict

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("state", VerdictState)
@pytest.mark.parametrize("severity", Severity)
def test_a_verdict_survives_whole(state: VerdictState, severity: Severity) -> None:
    web = CgroupRef("shop/web-0/app", "shop", "web-0", "app", "uid-1", "StatefulSet/shop/web")
    culprits = (Culprit("/batch", 0.5, How.DIRECT, CgroupRef("batch")), Culprit("[kernel]", 0.1, How.CORRELATED))
    verdict = msgspec.structs.replace(make_verdict(state=state, culprits=culprits), severity=severity, victim_ref=web)
    data = verdict_message(verdict).SerializeToString()
    assert verdict_of(pb.Verdict.FromString(data)) == verdict


def test_every_field_of_a_verdict_but_its_schema_is_on_the_wire() -> None:
    fields = {field.name for field in msgspec.structs.fields(Verdict)} - {"schema"}
    assert fields == {field.name for field in pb.Verdict.DESCRIPTOR.fields}


def test_the_mark_is_no_verdict() -> None:
    for message in (StreamMessage(None, 7), StreamMessage(make_verdict(), 3)):
        assert stream_message_of(pb.VerdictEvent.FromString(event_message(message).SerializeToString())) == message


def test_status_says_why_not() -> None:
    able = {"cpu": True, "pmu": False, "net": True}
    listed = capabilities(able, {"pmu": Unsupported("no PMU", "bare metal")}, {"net": "no driver call"})
    assert listed == (
        Capability("cpu", available=True),
        Capability("net", available=True, reason="no driver call"),
        Capability("pmu", available=False, reason="no PMU", remedy="bare metal"),
    )
    message = status_message(AgentStatus("n1", "0.1", "6.18", 1.0, listed, ticks=3), 2)
    assert (message.hostname, message.ticks, message.open_verdicts) == ("n1", 3, 2)
    assert [(each.name, each.remedy) for each in message.capabilities][2] == ("pmu", "bare metal")


def test_the_messages_are_what_the_file_says(tmp_path: Path) -> None:
    from grpc_tools import protoc

    arguments = ["protoc", f"-I{ROOT / 'api/proto'}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main([*arguments, "koordlet.proto"]) == 0
    for made in tmp_path.iterdir():
        kept = ROOT / "koordlet/serving" / made.name
        assert kept.read_text() == made.read_text(), "run `make proto`"
