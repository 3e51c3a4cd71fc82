"""Command lines of public load generators that run for longer than any bench: the stage ends them."""

import os
import subprocess
import sys
from pathlib import Path

from bench.detect.namespaces import THERE

LONGEST_SECONDS = 86_400
"""Of a generator that wants an end: what iperf3 takes at most, and stress-ng by default."""

_HERE = Path(__file__).parent


class LoadEndedError(Exception):
    """A load that was to run until it is stopped has ended."""


def check_running(name: str, process: subprocess.Popen[bytes]) -> None:
    """Raises LoadEndedError where it has ended."""
    if process.poll() is not None:
        raise LoadEndedError(f"{name} ended with status {process.returncode}")


def sysbench(threads: int = 1, *, rate: int = 0, primes: int = 2000) -> list[str]:
    """Compute; with a `rate`, so many requests a second at random times, else as many as will go."""
    paced = [f"--rate={rate}"] if rate else []
    return [
        "sysbench",
        "cpu",
        f"--threads={threads}",
        f"--cpu-max-prime={primes}",
        "--time=0",
        "--events=0",
        *paced,
        "run",
    ]


def stress(*words: str) -> list[str]:
    """stress-ng with these options."""
    return ["stress-ng", "--quiet", *words]


def hackbench(groups: int) -> list[str]:
    """Many short wakers: groups of 40 tasks that send each other small messages."""
    return ["hackbench", "-g", str(groups), "-l", "100000000"]


def redis_server(port: int, folder: Path) -> list[str]:
    """A server that writes nothing to disk."""
    return ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]


def redis_clients(port: int, clients: int, *, pipeline: int = 1) -> list[str]:
    """Clients that ask again as soon as they are answered."""
    words = f"redis-benchmark -p {port} -c {clients} -P {pipeline} -d 64 -r 10000 -t get,set -l -q"
    return words.split()


def nginx(port: int, folder: Path) -> list[str]:
    """One worker that answers at once."""
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null;\n"
        "events { worker_connections 256; }\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ return 200 'ok'; }} }} }}\n"
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


def nginx_proxy(port: int, backend: int, folder: Path) -> list[str]:
    """One worker that passes requests on to another port, as a sidecar does."""
    config = folder / "proxy.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/proxy.pid; error_log /dev/null;\n"
        "events { worker_connections 256; }\n"
        f"http {{ access_log off; upstream back {{ server 127.0.0.1:{backend}; keepalive 16; }}\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://back; proxy_http_version 1.1; "
        'proxy_set_header Connection ""; } } }\n'
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


def nginx_file(port: int, folder: Path, kibibytes: int) -> list[str]:
    """One worker that serves a file."""
    (folder / "index.html").write_bytes(b"x" * (kibibytes << 10))
    folder.chmod(0o755)
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null; user root;\n"
        "events { worker_connections 256; }\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


def lossy_clients(port: int, connections: int, ratio: float) -> list[str]:
    """Clients far away, on whose way this part of the packets is lost."""
    return [sys.executable, str(_HERE / "lossy_clients.py"), str(port), str(connections), str(ratio)]


def short_job() -> list[str]:
    """Compute for some hundredths of a second, and end."""
    return ["/bin/sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"]


def tailed_service(
    rate: float, sigma: float, median_seconds: float, *, connections: int = 8, later: float = 1.0, after: float = 0.0
) -> list[str]:
    """A service with lognormal times of answer, and its clients; so many times later after so many seconds."""
    numbers = (rate, sigma, median_seconds, connections, later, after)
    return [sys.executable, str(_HERE / "tailed_service.py"), *map(str, numbers)]


def every(seconds: float, argv: list[str]) -> list[str]:
    """Run a command again and again with pauses, as cron does."""
    return ["/bin/sh", "-c", 'while :; do sleep "$0"; "$@"; done', str(seconds), *argv]


def paced_requests(port: int, rate: int) -> list[str]:
    """One client that asks so often a second."""
    return [sys.executable, str(_HERE / "paced_requests.py"), str(port), str(rate)]


def wrk(port: int, connections: int) -> list[str]:
    """Keep so many connections busy."""
    return ["wrk", "-t1", f"-c{connections}", f"-d{LONGEST_SECONDS}s", f"http://127.0.0.1:{port}/"]


def fio(name: str, file: Path, *words: str) -> list[str]:
    """fio on one file, around the page cache by default."""
    common = f"--name={name} --filename={file} --time_based --runtime={LONGEST_SECONDS} --group_reporting --direct=1"
    return ["fio", *common.split(), *words]


def rewrite(file: Path, mebibytes: int) -> list[str]:
    """Write a file, cut it off and write it anew, over and over; in memory, this takes and gives back single pages."""
    again = 'while :; do dd if=/dev/zero of="$1" bs=1M count="$2" status=none; done'
    return ["/bin/sh", "-c", again, "rewrite", str(file), str(mebibytes)]


def iperf_server(port: int) -> list[str]:
    """One server, one client at a time."""
    return ["iperf3", "--server", "--port", str(port)]


def iperf(port: int, *words: str) -> list[str]:
    """Send to the server at the far end."""
    return ["iperf3", "--client", THERE, "--port", str(port), "--time", str(LONGEST_SECONDS), *words]


def lay_out(file: Path, mebibytes: int) -> None:
    """Write a file on the disk, so that reading it is reading."""
    with file.open("wb", buffering=0) as stream:
        for _ in range(mebibytes):
            stream.write(os.urandom(1 << 20))
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def hole(file: Path, mebibytes: int) -> None:
    """Make a file that takes page cache to read, and no disk."""
    with file.open("wb") as stream:
        stream.truncate(mebibytes << 20)
