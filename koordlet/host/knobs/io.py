"""The io knobs: each device and key is an item of its own, so that rules for others stay as they are."""

from pathlib import Path

from api.cgroup_path import path_text
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout, canonical, device_items
from koordlet.host.attributes import KernelFile
from koordlet.host.cgroups.controllers import Assignment
from koordlet.host.knobs.spec import KnobFile, KnobHost, KnobSpec, Lack

_BFQ_MOST = 1000
_IO_WEIGHT_MOST = 10_000
THROTTLES = {
    "rbps": KnobFile("blkio.throttle.read_bps_device", Format.THROTTLE),
    "wbps": KnobFile("blkio.throttle.write_bps_device", Format.THROTTLE),
    "riops": KnobFile("blkio.throttle.read_iops_device", Format.THROTTLE),
    "wiops": KnobFile("blkio.throttle.write_iops_device", Format.THROTTLE),
}
"""Files of cgroup v1 by the key of io.max."""


def assign_weights(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """`200`, `default 200` or `8:0 200`, one a line, in the first file that is there; bfq's scale ends at 1000."""
    is_v1 = host.directories.is_v1(spec.controller)
    directory = host.directories.directory(spec.controller, target)
    name = next((file.name for file in spec.files(host) if (directory / file.name).exists()), None)
    if name is None:
        raise Unsupported(f"no weight file in {directory}", "use the bfq scheduler or io.cost (see io.cost.qos)")
    most = _IO_WEIGHT_MOST if name == "io.weight" else _BFQ_MOST
    assigned = []
    for line in value.strip().splitlines():
        device, _, text = line.strip().rpartition(" ")
        attribute = _weight_file(directory / name, device, is_v1=is_v1)
        assigned.append(Assignment(attribute, str(min(int(text), most))))
    return tuple(assigned)


def _weight_file(path: Path, device: str, *, is_v1: bool) -> KernelFile:
    if device in ("", "default"):
        if is_v1:
            return KernelFile(path_text(str(path)), Format.INTEGER)
        return KernelFile(path_text(str(path)), Format.DEVICE_WEIGHT, Layout.DEVICE, "default")
    named = path.with_name(f"{path.name}_device") if is_v1 else path
    if not named.exists():
        raise Unsupported(f"there is no {named}", "set a weight for all devices")
    return KernelFile(path_text(str(named)), Format.DEVICE_WEIGHT, Layout.DEVICE, device)


def assign_limits(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """io.max, on v1 as throttles."""
    if not host.directories.is_v1(spec.controller):
        return assign_device_keys(host, spec, target, value)
    assigned = []
    for item, text in device_items(value).items():
        device, key = item.split()
        if key not in THROTTLES:
            raise ValueError(f"io.max has no key {key!r}")
        rule = spec.kernel_file(host, target, THROTTLES[key], Layout.DEVICE, device)
        assigned.append(Assignment(rule, canonical(Format.THROTTLE, text)))
    return tuple(assigned)


def assign_device_keys(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """`8:0 key=value ...` lines of a v2 file."""
    if host.directories.is_v1(spec.controller):
        raise (spec.lack or Lack(f"cgroup v1 has no {spec.v2[0].name}", "boot with cgroup v2")).error()
    (file,) = spec.v2
    path = spec.kernel_file(host, target, file).path
    assigned = []
    for item, text in device_items(value).items():
        text_format = file.format
        if text_format == Format.TEXT and item.split()[1] not in ("ctrl", "enable", "model"):
            text_format = Format.DECIMAL
        rule = KernelFile(path, text_format, Layout.DEVICE_KEY, item)
        assigned.append(Assignment(rule, canonical(text_format, text)))
    return tuple(assigned)
