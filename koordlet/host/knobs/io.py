"""The io knobs: rules stand by device and key, and each is a place of its own, so that other rules stay as they are."""

from pathlib import Path

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout, canonical, device_items
from koordlet.host.attributes import KernelFile
from koordlet.host.cgroups.controllers import LACKING, Assignment, Directories

_BFQ_MOST = 1000
_IO_WEIGHT_MOST = 10_000
_THROTTLES = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
}
_FORMS = {Knob.IO_MAX: Format.RATE, Knob.IO_LATENCY: Format.RATE}


def weight_parts(directories: Directories, target: str, value: str) -> tuple[Assignment, ...]:
    """`200`, `default 200` or `8:0 200`, one a line; bfq's scale ends at 1000."""
    is_v1 = directories.is_v1("io")
    directory = directories.directory("io", target)
    names = ("blkio.bfq.weight", "blkio.weight") if is_v1 else ("io.weight", "io.bfq.weight")
    name = next((name for name in names if (directory / name).exists()), None)
    if name is None:
        raise Unsupported(f"no weight file in {directory}", "use the bfq scheduler or io.cost (see io.cost.qos)")
    most = _IO_WEIGHT_MOST if name == "io.weight" else _BFQ_MOST
    parts = []
    for line in value.strip().splitlines():
        device, _, text = line.strip().rpartition(" ")
        place = _weight_place(directory / name, device, is_v1=is_v1)
        parts.append(Assignment(place, str(min(int(text), most))))
    return tuple(parts)


def _weight_place(path: Path, device: str, *, is_v1: bool) -> KernelFile:
    if device in ("", "default"):
        if is_v1:
            return KernelFile(str(path), Format.INTEGER)
        return KernelFile(str(path), Format.DEVICE_WEIGHT, Layout.DEVICE, "default")
    named = path.with_name(f"{path.name}_device") if is_v1 else path
    if not named.exists():
        raise Unsupported(f"there is no {named}", "set a weight for all devices")
    return KernelFile(str(named), Format.DEVICE_WEIGHT, Layout.DEVICE, device)


def limit_parts(directories: Directories, target: str, value: str) -> tuple[Assignment, ...]:
    """io.max, on v1 as throttles."""
    if not directories.is_v1("io"):
        return keyed_parts(directories, Knob.IO_MAX, target, value)
    parts = []
    for item, text in device_items(value).items():
        device, key = item.split()
        if key not in _THROTTLES:
            raise ValueError(f"io.max has no key {key!r}")
        place = directories.file(Knob.IO_MAX, "io", target, _THROTTLES[key], Format.THROTTLE, Layout.DEVICE)
        rule = KernelFile(place.path, place.form, place.layout, device)
        parts.append(Assignment(rule, canonical(Format.THROTTLE, text)))
    return tuple(parts)


def keyed_parts(directories: Directories, knob: Knob, target: str, value: str) -> tuple[Assignment, ...]:
    """`8:0 key=value ...` lines of a v2 file."""
    if directories.is_v1("io"):
        raise Unsupported(*LACKING[knob])
    place = directories.file(knob, "io", target, knob.value, _FORMS.get(knob, Format.TEXT), Layout.DEVICE_KEY)
    parts = []
    for item, text in device_items(value).items():
        form = place.form
        if form == Format.TEXT and item.split()[1] not in ("ctrl", "enable"):
            form = Format.DECIMAL
        parts.append(Assignment(KernelFile(place.path, form, place.layout, item), canonical(form, text)))
    return tuple(parts)
