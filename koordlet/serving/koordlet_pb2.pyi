from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_OPEN: _ClassVar[State]
    STATE_UPDATE: _ClassVar[State]
    STATE_CLOSE: _ClassVar[State]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_LOW: _ClassVar[Severity]
    SEVERITY_MEDIUM: _ClassVar[Severity]
    SEVERITY_HIGH: _ClassVar[Severity]

class How(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOW_UNSPECIFIED: _ClassVar[How]
    HOW_DIRECT: _ClassVar[How]
    HOW_CORRELATED: _ClassVar[How]
STATE_UNSPECIFIED: State
STATE_OPEN: State
STATE_UPDATE: State
STATE_CLOSE: State
SEVERITY_UNSPECIFIED: Severity
SEVERITY_LOW: Severity
SEVERITY_MEDIUM: Severity
SEVERITY_HIGH: Severity
HOW_UNSPECIFIED: How
HOW_DIRECT: How
HOW_CORRELATED: How

class VerdictFilter(_message.Message):
    __slots__ = ("victim", "resource")
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    victim: str
    resource: str
    def __init__(self, victim: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class CgroupRef(_message.Message):
    __slots__ = ("name", "namespace", "pod", "container", "pod_uid", "workload")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    pod: str
    container: str
    pod_uid: str
    workload: str
    def __init__(self, name: _Optional[str] = ..., namespace: _Optional[str] = ..., pod: _Optional[str] = ..., container: _Optional[str] = ..., pod_uid: _Optional[str] = ..., workload: _Optional[str] = ...) -> None: ...

class Culprit(_message.Message):
    __slots__ = ("path", "share", "how", "ref")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    path: str
    share: float
    how: How
    ref: CgroupRef
    def __init__(self, path: _Optional[str] = ..., share: _Optional[float] = ..., how: _Optional[_Union[How, str]] = ..., ref: _Optional[_Union[CgroupRef, _Mapping]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("time", "state", "victim", "resource", "cause", "lost_seconds_per_second", "severity", "culprits", "confidence", "evidence", "rule", "since", "victim_ref")
    class EvidenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VICTIM_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LOST_SECONDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    VICTIM_REF_FIELD_NUMBER: _ClassVar[int]
    time: float
    state: State
    victim: str
    resource: str
    cause: str
    lost_seconds_per_second: float
    severity: Severity
    culprits: _containers.RepeatedCompositeFieldContainer[Culprit]
    confidence: float
    evidence: _containers.ScalarMap[str, float]
    rule: str
    since: float
    victim_ref: CgroupRef
    def __init__(self, time: _Optional[float] = ..., state: _Optional[_Union[State, str]] = ..., victim: _Optional[str] = ..., resource: _Optional[str] = ..., cause: _Optional[str] = ..., lost_seconds_per_second: _Optional[float] = ..., severity: _Optional[_Union[Severity, str]] = ..., culprits: _Optional[_Iterable[_Union[Culprit, _Mapping]]] = ..., confidence: _Optional[float] = ..., evidence: _Optional[_Mapping[str, float]] = ..., rule: _Optional[str] = ..., since: _Optional[float] = ..., victim_ref: _Optional[_Union[CgroupRef, _Mapping]] = ...) -> None: ...

class VerdictList(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ...) -> None: ...

class VerdictEvent(_message.Message):
    __slots__ = ("verdict", "snapshot_complete", "dropped")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    snapshot_complete: bool
    dropped: int
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., snapshot_complete: _Optional[bool] = ..., dropped: _Optional[int] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FrameRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FrameBlock(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    def __init__(self, frame: _Optional[bytes] = ...) -> None: ...

class Capability(_message.Message):
    __slots__ = ("name", "available", "reason", "remedy")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    name: str
    available: bool
    reason: str
    remedy: str
    def __init__(self, name: _Optional[str] = ..., available: _Optional[bool] = ..., reason: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("hostname", "version", "kernel", "interval_seconds", "ticks", "last_tick", "cgroups", "open_verdicts", "capabilities")
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_FIELD_NUMBER: _ClassVar[int]
    CGROUPS_FIELD_NUMBER: _ClassVar[int]
    OPEN_VERDICTS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    version: str
    kernel: str
    interval_seconds: float
    ticks: int
    last_tick: float
    cgroups: int
    open_verdicts: int
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    def __init__(self, hostname: _Optional[str] = ..., version: _Optional[str] = ..., kernel: _Optional[str] = ..., interval_seconds: _Optional[float] = ..., ticks: _Optional[int] = ..., last_tick: _Optional[float] = ..., cgroups: _Optional[int] = ..., open_verdicts: _Optional[int] = ..., capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ...) -> None: ...
