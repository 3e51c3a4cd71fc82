"""The first root of the guest: busybox, the modules that reach the host's root over 9p, and an init script."""

import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.vm.debian import Kernel, UnavailableError

ROOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
INIT = Path(__file__).parent / "guest" / "init.sh"


def load_order(modules_dep: str, wanted: tuple[str, ...]) -> list[str]:
    """Order module files so that each comes after those it needs; built-in modules are left out.

    `modules_dep` is the text of modules.dep: "path: needed needed ...", the nearest dependency first.
    """
    needs: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in modules_dep.splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
        by_name[_module_name(path)] = path
    order: list[str] = []
    for name in wanted:
        module = by_name.get(name.replace("-", "_"))
        if module is not None:
            order += [path for path in (*reversed(needs[module]), module) if path not in order]
    return order


def _module_name(path: str) -> str:
    return Path(path).name.partition(".")[0].replace("-", "_")


def build(kernel: Kernel, destination: Path) -> None:
    """Write an uncompressed initramfs for `kernel`. Raises UnavailableError without busybox or cpio."""
    busybox = shutil.which("busybox")
    if busybox is None or shutil.which("cpio") is None:
        raise UnavailableError("busybox-static or cpio is not installed")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in ("bin", "modules", "proc", "sys", "dev", "lower", "upper", "root"):
            (root / name).mkdir()
        shutil.copy(busybox, root / "bin" / "busybox")
        shutil.copy(INIT, root / "init")
        (root / "init").chmod(0o755)
        order = load_order((kernel.modules / "modules.dep").read_text(), ROOT_MODULES)
        for position, module in enumerate(order):
            data = read_module(kernel.modules / module)
            (root / "modules" / f"{position:02d}-{_module_name(module)}.ko").write_bytes(data)
        _archive(root, destination)


def read_module(path: Path) -> bytes:
    """Return a module file's content, decompressed."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
    return path.read_bytes()


def _archive(root: Path, destination: Path) -> None:
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with destination.open("wb") as stream:
        subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=stream, check=True
        )
