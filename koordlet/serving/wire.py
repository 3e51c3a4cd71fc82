"""Verdicts and status as protobuf messages, and back. Pure."""

from api.verdicts import NO_REF, CgroupRef, Culprit, How, Severity, Verdict, VerdictState
from koordlet.serving import koordlet_pb2 as pb
from koordlet.serving.broadcast import StreamMessage, VerdictFilter
from koordlet.serving.status import AgentStatus

_STATES = {VerdictState.OPEN: pb.STATE_OPEN, VerdictState.UPDATE: pb.STATE_UPDATE, VerdictState.CLOSE: pb.STATE_CLOSE}
_SEVERITIES = {
    Severity.LOW: pb.SEVERITY_LOW,
    Severity.MEDIUM: pb.SEVERITY_MEDIUM,
    Severity.HIGH: pb.SEVERITY_HIGH,
}
_HOWS = {How.DIRECT: pb.HOW_DIRECT, How.CORRELATED: pb.HOW_CORRELATED}
_STATE_OF = {number: state for state, number in _STATES.items()}
_SEVERITY_OF = {number: severity for severity, number in _SEVERITIES.items()}
_HOW_OF = {number: how for how, number in _HOWS.items()}


def verdict_message(verdict: Verdict) -> pb.Verdict:
    """Return the verdict as a protobuf message."""
    return pb.Verdict(
        time=verdict.time,
        state=_STATES[verdict.state],
        victim=verdict.victim,
        resource=verdict.resource,
        cause=verdict.cause,
        lost_seconds_per_second=verdict.lost_seconds_per_second,
        severity=_SEVERITIES[verdict.severity],
        culprits=[
            pb.Culprit(path=each.path, share=each.share, how=_HOWS[each.how], ref=_ref_message(each.ref))
            for each in verdict.culprits
        ],
        confidence=verdict.confidence,
        evidence=verdict.evidence,
        rule=verdict.rule,
        since=verdict.since,
        victim_ref=_ref_message(verdict.victim_ref),
    )


def verdict_of(message: pb.Verdict) -> Verdict:
    """Return the verdict of a message. Raises KeyError for an enum value that this version does not know."""
    return Verdict(
        time=message.time,
        state=_STATE_OF[message.state],
        victim=message.victim,
        resource=message.resource,
        cause=message.cause,
        lost_seconds_per_second=message.lost_seconds_per_second,
        severity=_SEVERITY_OF[message.severity],
        culprits=tuple(
            Culprit(each.path, each.share, _HOW_OF[each.how], _ref_of(each.ref)) for each in message.culprits
        ),
        confidence=message.confidence,
        evidence=dict(message.evidence),
        rule=message.rule,
        since=message.since,
        victim_ref=_ref_of(message.victim_ref),
    )


def _ref_message(ref: CgroupRef) -> pb.CgroupRef | None:
    if ref == NO_REF:
        return None
    return pb.CgroupRef(
        name=ref.name,
        namespace=ref.namespace,
        pod=ref.pod,
        container=ref.container,
        pod_uid=ref.pod_uid,
        workload=ref.workload,
    )


def _ref_of(message: pb.CgroupRef) -> CgroupRef:
    return CgroupRef(message.name, message.namespace, message.pod, message.container, message.pod_uid, message.workload)


def event_message(message: StreamMessage) -> pb.VerdictEvent:
    """Return one message of the stream as protobuf."""
    if message.verdict is None:
        return pb.VerdictEvent(snapshot_complete=True, dropped=message.dropped)
    return pb.VerdictEvent(verdict=verdict_message(message.verdict), dropped=message.dropped)


def stream_message_of(message: pb.VerdictEvent) -> StreamMessage:
    """Return one message of the stream from protobuf."""
    verdict = verdict_of(message.verdict) if message.HasField("verdict") else None
    return StreamMessage(verdict, message.dropped)


def filter_of(message: pb.VerdictFilter) -> VerdictFilter:
    """Return the filter of a request."""
    return VerdictFilter(message.victim, message.resource)


def status_message(status: AgentStatus, open_verdicts: int) -> pb.NodeStatus:
    """Return the node's status as a protobuf message."""
    return pb.NodeStatus(
        hostname=status.hostname,
        version=status.version,
        kernel=status.kernel,
        interval_seconds=status.interval_seconds,
        ticks=status.ticks,
        last_tick=status.last_tick_seconds,
        cgroups=status.cgroups,
        open_verdicts=open_verdicts,
        capabilities=[
            pb.Capability(name=each.name, available=each.available, reason=each.reason, remedy=each.remedy)
            for each in status.capabilities
        ],
    )
