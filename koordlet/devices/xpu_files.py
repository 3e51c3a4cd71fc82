"""Device-info files: accelerators as a vendor's tool wrote them, a JSON array in each file of a directory.

Format: Koordinator's xPU device infos. A file that cannot be read, and an entry that makes no sense, is passed over
and named; the other entries count.
"""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from api.kube.device import DeviceInfo, DeviceTopology
from api.kube.meta import Quantity, Wire
from api.kube.resources import QuantityError, parse_quantity
from api.plugin import Unsupported
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.devices.inventory import GPU_TYPE, FoundDevice, LinkGroup

MAX_FILE_BYTES = 1 << 20
MAX_FILES = 64
MAX_MINOR = 1023
_WITH_PREFIX = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}
"""Resource names that the files write without their domain."""


class XpuLink(Wire, frozen=True):
    """A direct link to another accelerator."""

    peer_minor: str = ""
    """One minor, or several separated by commas."""
    type: str = ""


class XpuTopology(Wire, frozen=True):
    """Location and links of an accelerator, texts as the vendors' tools print them."""

    p2p_links: tuple[XpuLink, ...] = ()
    must_honor_partition: bool = False
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(Wire, frozen=True):
    """Health of an accelerator; `healthy` is left out where it is false."""

    healthy: bool = False
    err_code: str = ""
    err_message: str = ""


class XpuInfo(Wire, frozen=True):
    """One accelerator of a device-info file."""

    vendor: str = ""
    model: str = ""
    uuid: str = ""
    minor: str = ""
    resources: dict[str, Quantity] = msgspec.field(default_factory=dict)
    topology: XpuTopology | None = None
    status: XpuStatus | None = None


@dataclass(frozen=True, slots=True)
class XpuFindings:
    """Accelerators by their uuid, and what was passed over."""

    devices: tuple[FoundDevice, ...] = ()
    refused: tuple[str, ...] = ()
    """One sentence each, with the file's name."""


def xpu_devices(directory: Path) -> XpuFindings:
    """Read all files of a directory in the order of their names. Raises Unsupported where there is none."""
    try:
        files = sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise Unsupported(
            f"no device-info files in {directory}: {error.strerror}", "run the vendor's device daemon"
        ) from error
    if not files:
        raise Unsupported(f"no device-info files in {directory}", "run the vendor's device daemon")
    found: dict[str, FoundDevice] = {}
    refused = [f"{directory}: only {MAX_FILES} of {len(files)} files were read"] if len(files) > MAX_FILES else []
    for file in files[:MAX_FILES]:
        devices, problems = _of_file(file)
        for device in devices:
            if device.info.id in found:
                problems.append(f"{file}: {device.info.id} stands in another entry too")
            elif any(device.minor == other.minor for other in found.values()):
                problems.append(f"{file}: {device.info.id} has the minor {device.minor} of another entry")
            else:
                found[device.info.id] = device
        refused += problems
    return XpuFindings(tuple(found[uuid] for uuid in sorted(found)), tuple(refused))


def parse_xpu_infos(text: bytes, source: str) -> tuple[list[FoundDevice], list[str]]:
    """Return the devices of a file's content, and what was passed over."""
    try:
        entries = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return [], [f"{source}: no JSON array of devices: {error}"]
    devices, refused = [], []
    for number, entry in enumerate(entries):
        try:
            devices.append(_device(msgspec.json.decode(entry, type=XpuInfo)))
        except (msgspec.DecodeError, QuantityError, ValueError, RecursionError) as error:
            refused.append(f"{source}: entry {number}: {error}")
    return devices, refused


def _of_file(file: Path) -> tuple[list[FoundDevice], list[str]]:
    """The directory may be written by others: neither a pipe nor a large file stops the agent."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return [], [f"{file}: no regular file"]
        if status.st_size > MAX_FILE_BYTES:
            return [], [f"{file}: {status.st_size} bytes are more than {MAX_FILE_BYTES}"]
        return parse_xpu_infos(file.read_bytes(), str(file))
    except OSError as error:
        return [], [f"{file}: {error.strerror}"]


def _device(info: XpuInfo) -> FoundDevice:
    """Raises ValueError for an entry without uuid or minor, or with a quantity that is none."""
    if not info.uuid:
        raise ValueError("no uuid")
    minor = _minor(info.minor)
    resources: dict[str, Quantity] = {GPU_MEMORY_RATIO: 100}
    for name, amount in info.resources.items():
        if parse_quantity(amount) < 0:
            raise ValueError(f"resource {name} is negative")
        resources[_WITH_PREFIX.get(name, name)] = amount
    health, place = info.status or XpuStatus(healthy=True), info.topology or XpuTopology()
    fault = "" if health.healthy else health.err_message or "the device-info file says so"
    return FoundDevice(
        info=DeviceInfo(
            type=GPU_TYPE, id=info.uuid, minor=minor, resources=resources, topology=_location(info.topology)
        ),
        fault_code="" if health.healthy else health.err_code or "Unhealthy",
        fault=fault,
        vendor=info.vendor,
        model=info.model,
        groups=tuple(
            LinkGroup(link.type, frozenset(peers | {minor}))
            for link in place.p2p_links
            if link.type and (peers := set(_minors(link.peer_minor)))
        ),
        must_honor_partition=place.must_honor_partition,
    )


def _minor(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > MAX_MINOR:
        raise ValueError(f"minor {text[:32]!r} is no number from 0 to {MAX_MINOR}")
    return int(text)


def _minors(texts: str) -> Iterable[int]:
    for text in (part.strip() for part in texts.split(",")):
        try:
            yield _minor(text)
        except ValueError:
            continue


def _location(place: XpuTopology | None) -> DeviceTopology | None:
    """None unless NUMA node, PCIe root and bus id are all known."""
    if place is None or not place.pcie_id or not place.bus_id:
        return None
    try:
        node, socket = int(place.node_id), int(place.socket_id or -1)
    except ValueError:
        return None
    if node < 0:
        return None
    return DeviceTopology(socket_id=socket, node_id=node, pcie_id=place.pcie_id, bus_id=place.bus_id)
