"""Network scenarios: a neighbour fills the victim's send queue, or its CPU with packets."""

from bench.detect import loads
from bench.detect.claims import Claim, Proof, Scenario
from bench.detect.measures import QUEUED_BYTES, interrupt_seconds
from bench.detect.namespaces import Namespaces
from bench.detect.stage import HARM_SECONDS, RECOVER_SECONDS, SETTLE_SECONDS, Stage

_PORTS = (5301, 5302)


def _servers(stage: Stage, namespaces: Namespaces) -> None:
    for port in _PORTS:
        stage.start("servers", loads.iperf_server(port), stage.far, namespace=namespaces.far)
    stage.wait(0.5)


def _flood(stage: Stage) -> None:
    namespaces = stage.namespaces()
    namespaces.shape("50mbit", "400kb")
    _servers(stage, namespaces)
    stage.meter.add("victim", QUEUED_BYTES, namespaces.queued_bytes)
    talk = ("--udp", "--bitrate", "2M", "--length", "500")
    stage.start("victim", loads.iperf(_PORTS[0], *talk), stage.near, namespace=namespaces.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        flood = ("--udp", "--bitrate", "200M", "--length", "1400")
        stage.start("flood", loads.iperf(_PORTS[1], *flood), stage.far, namespace=namespaces.near)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _bulk(stage: Stage) -> None:
    namespaces = stage.namespaces()
    namespaces.shape("50mbit", "800kb")
    _servers(stage, namespaces)
    stage.meter.add("victim", QUEUED_BYTES, namespaces.queued_bytes)
    talk = ("--bitrate", "3M", "--length", "1000")
    stage.start("victim", loads.iperf(_PORTS[0], *talk), stage.near, namespace=namespaces.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        stage.start("bulk", loads.iperf(_PORTS[1], "--parallel", "4"), stage.far, namespace=namespaces.near)
        stage.wait(HARM_SECONDS)
        stage.stop("bulk")
    stage.wait(RECOVER_SECONDS)


def _routed_pods(stage: Stage) -> None:
    network = stage.pod_network("victim", "flood")
    network.shape("50mbit", "400kb")
    for port in _PORTS:
        stage.start("servers", loads.iperf_server(port), stage.far, namespace=network.world)
    stage.wait(0.5)
    stage.meter.add("victim", QUEUED_BYTES, network.queued_bytes)
    talk = ("--udp", "--bitrate", "2M", "--length", "500")
    stage.start("victim", loads.iperf(_PORTS[0], *talk), stage.near, namespace=network.namespace("victim"))
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        flood = ("--udp", "--bitrate", "200M", "--length", "1400")
        stage.start("flood", loads.iperf(_PORTS[1], *flood), stage.far, namespace=network.namespace("flood"))
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _veth_flood(stage: Stage) -> None:
    network = stage.pod_network("flood")
    network.receive_on("flood", stage.near)
    stage.start("servers", loads.iperf_server(_PORTS[0]), stage.far, namespace=network.world)
    stage.wait(0.5)
    stage.meter.add("victim", "interrupts", lambda: interrupt_seconds(int(stage.near)))
    stage.start("victim", loads.sysbench(), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        flood = ("--udp", "--bitrate", "0", "--length", "64")
        stage.start("flood", loads.iperf(_PORTS[0], *flood), stage.far, namespace=network.namespace("flood"))
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _interrupts(stage: Stage) -> None:
    namespaces = stage.namespaces()
    namespaces.receive_on(stage.near)
    _servers(stage, namespaces)
    stage.meter.add("victim", "interrupts", lambda: interrupt_seconds(int(stage.near)))
    stage.start("victim", loads.sysbench(), stage.near)
    stage.wait(SETTLE_SECONDS)
    with stage.harm():
        flood = ("--udp", "--bitrate", "0", "--length", "64")
        stage.start("flood", loads.iperf(_PORTS[0], *flood), stage.far, namespace=namespaces.near)
        stage.wait(HARM_SECONDS)
        stage.stop("flood")
    stage.wait(RECOVER_SECONDS)


def _delayed(culprit: str) -> tuple[Claim, ...]:
    return (
        Claim("victim", "network", "delay", culprit),
        Claim("victim", "network", "retransmit", tolerated=True),
        Claim(culprit, "network", "delay", tolerated=True),
        Claim(culprit, "network", "retransmit", tolerated=True),
        *_busy(culprit),
    )


def _busy(*roles: str) -> tuple[Claim, ...]:
    """Tolerated: sender and servers of a flood share the far CPU and its interrupts."""
    return tuple(Claim(role, "cpu", "", tolerated=True) for role in (*roles, "servers"))


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "packet-flood",
        "datagrams at four times the wire's rate",
        _flood,
        _delayed("flood"),
        (Proof("victim", QUEUED_BYTES, 30_000),),
    ),
    Scenario(
        "bulk-transfer",
        "four bulk TCP streams on the wire of a paced one",
        _bulk,
        _delayed("bulk"),
        (Proof("victim", QUEUED_BYTES, 30_000),),
    ),
    Scenario(
        "routed-pods",
        "a pod's datagrams at four times the rate of the node's uplink, ahead of another pod's",
        _routed_pods,
        _delayed("flood"),
        (Proof("victim", QUEUED_BYTES, 30_000),),
    ),
    Scenario(
        "veth-flood",
        "what a pod sends through its veth pair is routed on the victim's CPU",
        _veth_flood,
        (
            Claim("victim", "cpu", "irq", "[kernel]"),
            Claim("victim", "cpu", "contention", tolerated=True),
            *_busy("flood"),
        ),
        (Proof("victim", "interrupts", 0.05),),
    ),
    Scenario(
        "interrupts",
        "a neighbour's packets are handled on the victim's CPU",
        _interrupts,
        (
            Claim("victim", "cpu", "irq", "[kernel]"),
            Claim("victim", "cpu", "contention", tolerated=True),
            *_busy("flood"),
        ),
        (Proof("victim", "interrupts", 0.05),),
    ),
)
