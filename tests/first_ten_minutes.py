"""A person's first ten minutes: `python -m tests.first_ten_minutes` does what README and tour say, in their order.

The commands come from the pages themselves and run in a fresh clone, as root, with the time of each printed. A command
that fails, waits for longer than its limit, or has no entry in PLAN ends the run with status 1. What is private to the
run (/etc/koord, /run/koord, /var/lib/koord, /var/log/koord) lies on memory in a mount namespace. A service and batch
work of the demo run beside the commands that wait for verdicts. Takes some ten minutes: not a part of `make test`.
"""

import argparse
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from koordlet.demo.stage import staged
from tests.docs.pages import ROOT, Block, blocks

PAGES = ("README.md", "docs/tour.md")
PRIVATE = ("/etc/koord", "/run/koord", "/var/lib/koord", "/var/log/koord")
SETTINGS = Path("/etc/koord/koordlet.toml")
SETUP_SECONDS = 600.0
"""README: up to ten minutes for the first set-up."""
DEMO_SECONDS = 150.0
"""README and tour: some two minutes."""
SOON_SECONDS = 30.0
"""What no page gives a time for."""
LEAVING_SECONDS = 5.0
"""From `q` to the end of what draws in a terminal."""
RECORD_SECONDS = 25.0


@dataclass(frozen=True)
class Ends:
    """A command that ends by itself, with status 0."""

    limit_seconds: float = SOON_SECONDS


@dataclass(frozen=True)
class Serves:
    """A command that goes on until Ctrl-C; it must print `until` first, and end with status 0 then."""

    until: str
    limit_seconds: float = SOON_SECONDS
    linger_seconds: float = 0.0
    beside_load: bool = False
    stays: bool = False
    """It goes on until the end of its section, for the commands after it."""


@dataclass(frozen=True)
class Screen:
    """A command that draws in a terminal until `q`."""

    until: str
    limit_seconds: float = SOON_SECONDS


@dataclass(frozen=True)
class Elsewhere:
    """A command that another test runs, with the reason."""

    why: str


How = Ends | Serves | Screen | Elsewhere
_CLUSTER = Elsewhere("needs a cluster: tests/cluster_e2e/test_chart.py")
_LISTED = Elsewhere("with places to fill in; the tour has it")
METRICS = r"metrics on http"

PLAN: Mapping[str, How] = {
    "make run": Serves(METRICS, SETUP_SECONDS),
    "make test": Elsewhere("every test of the project: CI"),
    "koordlet top": Screen("lost"),
    "koordlet run --standalone": Serves(METRICS),
    "koordlet run --node NAME": _LISTED,
    "koordlet run --standalone --json": Serves(r'"state"', beside_load=True),
    "koordlet verdicts --follow": Serves(r"lost|open|verdict", beside_load=True),
    "koordlet snapshot --seconds 5": Ends(),
    "koordlet snapshot --seconds 5 --json": Ends(),
    "koordlet doctor": Ends(),
    "koordlet demo": Ends(DEMO_SECONDS),
    "koordlet run --standalone --enforce --config FILE": _LISTED,
    "koordlet restore": Ends(),
    "koordlet run --standalone --record DIR": _LISTED,
    "koord-detector replay DIR": _LISTED,
    "koord-detector explain DIR --victim web --at 14:03:05 --png web.png": _LISTED,
    "koordlet run --standalone --config /etc/koord/koordlet.toml": Serves(METRICS, stays=True),
    "koordlet top --connect unix:/run/koord/koordlet.sock": Screen("lost"),
    "koordlet run --check-config --config /etc/koord/koordlet.toml": Ends(),
    "koordlet actions --log 20": Ends(),
    "koordlet run --standalone --enforce --config /etc/koord/koordlet.toml": Serves(METRICS),
    "koordlet run --standalone --record /var/lib/koord/recordings": Serves(
        METRICS, linger_seconds=RECORD_SECONDS, beside_load=True
    ),
    "koord-detector explain /var/lib/koord/recordings --victim web --at 14:03:05": Ends(),
    "koord-detector replay /var/lib/koord/recordings": Ends(60.0),
    "ssh -L 9316:127.0.0.1:9316 node-7": Elsewhere("needs another host"),
    "kubectl --namespace koord-system port-forward pod/koordlet-x7x2p 9316": _CLUSTER,
    "helm install koord deploy/chart --namespace koord-system --create-namespace": _CLUSTER,
    "kubectl label namespace koord-system pod-security.kubernetes.io/enforce=privileged": _CLUSTER,
    "kubectl koord nodes": _CLUSTER,
    "kubectl koord verdicts": _CLUSTER,
    "kubectl koord why shop/web-0": _CLUSTER,
    "kubectl koord pause node-7": _CLUSTER,
    "kubectl koord resume node-7": _CLUSTER,
    "kubectl koord explain node/node-7": Elsewhere("needs a cluster: tests/kubectl_koord/test_commands.py"),
    "helm uninstall koord --namespace koord-system": _CLUSTER,
    "make uninstall": Elsewhere("would end what is installed on this machine: tests/deploy/test_install.py"),
}
"""What each command of the pages does."""
ON_PAGE: Mapping[tuple[str, str], How] = {
    ("README.md", "koordlet verdicts --follow"): Elsewhere("of a running agent with a socket: the tour starts one"),
}
"""What a command does on one page alone."""


@dataclass(frozen=True)
class Command:
    """One line of a block."""

    text: str
    page: str
    line: int
    section: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def how(self) -> How | None:
        """What it does where it stands; None has no entry."""
        return ON_PAGE.get((self.page, self.text)) or PLAN.get(self.text)


def commands() -> Iterator[Command | Block]:
    """The commands of the pages in order, and settings that a page shows between them."""
    for name in PAGES:
        page = ROOT / name
        headings = [
            (number, line.lstrip("# "))
            for number, line in enumerate(page.read_text().splitlines(), 1)
            if line[:3] == "## "
        ]
        for block in blocks():
            if block.page != page:
                continue
            section = [title for line, title in headings if line < block.line][-1]
            if name == "README.md" and section not in ("Start", "Use"):
                continue
            if block.language == "toml":
                yield block
            elif not block.language:
                for offset, line in enumerate(block.text.splitlines(), 1):
                    text = re.split(r"\s+#\s", line)[0].strip()
                    if text:
                        yield Command(text, name, block.line + offset, section)


class Failed(Exception):
    """A step that failed, or took too long; the message says which."""


class Run:
    """The commands in one clone."""

    def __init__(self, clone: Path, logs: Path) -> None:
        self.clone = clone
        self.logs = logs
        self.log = logs
        """Output of the newest command."""
        self.looked_at = time.time()
        """When the last command that lingered beside the load had done so for half of its time; what is explained."""
        programs = f"{clone}/.venv/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": programs, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self.staying: list[subprocess.Popen[bytes]] = []

    def do(self, text: str, how: How) -> None:
        """Carry out one command. Raises Failed."""
        self.log = self.logs / f"{len(list(self.logs.iterdir()))}.log"
        if isinstance(how, Ends):
            self._ends(text, how)
        elif isinstance(how, Screen):
            self._draws(text, how)
        elif isinstance(how, Serves):
            with ExitStack() as beside:
                if how.beside_load:
                    stage = beside.enter_context(staged(0.010))
                    stage.start_service()
                    stage.start_client(40.0, 600.0, 1)
                    stage.start_batch()
                self._serves(text, how)

    def end_section(self) -> int:
        """End what stayed for the commands of a section; return how many of them failed at that."""
        failures = 0
        for process in self.staying:
            try:
                self._interrupt(process, "what the section started")
            except Failed as failure:
                print(f"             FAILED: {failure}", flush=True)
                failures += 1
        self.staying.clear()
        return failures

    def _start(self, text: str, output: int) -> subprocess.Popen[bytes]:
        words = ["bash", "-c", f"exec {text}"] if not text.startswith("make") else ["bash", "-c", text]
        return subprocess.Popen(
            words, cwd=self.clone, env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def _ends(self, text: str, how: Ends) -> None:
        with self.log.open("wb") as log:
            process = self._start(text, log.fileno())
            try:
                status = process.wait(how.limit_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Failed(f"it went on after {how.limit_seconds:.0f} s") from None
        if status:
            raise Failed(f"status {status}")
        if not self.log.read_bytes().strip() and "restore" not in text:
            raise Failed("it printed nothing")

    def _serves(self, text: str, how: Serves) -> None:
        log = self.log.open("wb")
        with log:
            process = self._start(text, log.fileno())
        try:
            self._wait_for(process, how)
            time.sleep(how.linger_seconds / 2)
            self.looked_at = time.time()
            time.sleep(how.linger_seconds / 2)
        except BaseException:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise
        if how.stays:
            self.staying.append(process)
        else:
            self._interrupt(process, text)

    def _wait_for(self, process: subprocess.Popen[bytes], how: Serves) -> None:
        end = time.monotonic() + how.limit_seconds
        while not re.search(how.until, self.log.read_text(errors="replace")):
            if process.poll() is not None:
                raise Failed(f"it ended with status {process.returncode}")
            if time.monotonic() > end:
                raise Failed(f"no {how.until!r} within {how.limit_seconds:.0f} s")
            time.sleep(0.2)

    @staticmethod
    def _interrupt(process: subprocess.Popen[bytes], text: str) -> None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            status = process.wait(SOON_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Failed(f"{text} went on after Ctrl-C") from None
        if status not in (0, 2, 130, -signal.SIGINT):  # make says 2 for what its command was interrupted at
            raise Failed(f"{text} ended with status {status} after Ctrl-C")

    def _draws(self, text: str, how: Screen) -> None:
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.clone)
            os.execvpe("bash", ["bash", "-c", f"stty rows 40 cols 120; exec {text}"], self.environment)
        shown, asked_to_leave = b"", False
        end = time.monotonic() + how.limit_seconds
        try:
            while time.monotonic() < end:
                if terminal in select.select([terminal], [], [], 0.2)[0]:
                    try:
                        shown += os.read(terminal, 65536)
                    except OSError:  # the program has left its terminal
                        break
                self.log.write_bytes(shown)
                if not asked_to_leave and re.search(how.until.encode(), shown, re.IGNORECASE):
                    os.write(terminal, b"q")
                    asked_to_leave = True
                    end = max(end, time.monotonic() + LEAVING_SECONDS)
            # The program has left its terminal, or is late.
            ended, state = os.waitpid(child, os.WNOHANG)
            while not ended and asked_to_leave and time.monotonic() < end:
                time.sleep(0.05)
                ended, state = os.waitpid(child, os.WNOHANG)
        finally:
            os.close(terminal)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not asked_to_leave:
            raise Failed(f"it {'ended' if ended else 'went on'} and drew no {how.until!r}")
        if not ended:
            raise Failed("it went on after q")
        if os.waitstatus_to_exitcode(state):
            raise Failed(f"status {os.waitstatus_to_exitcode(state)} after q")


def settle(block: Block) -> None:
    """Add the settings that a page shows to those that an installation brings."""
    SETTINGS.write_text((ROOT / "deploy/systemd/koordlet.toml").read_text() + "\n" + block.text)


def filled_in(text: str, when: float) -> str:
    """Replace the name and the time of an example by those of the load that ran."""
    clock = time.strftime("%H:%M:%S", time.localtime(when))
    return text.replace("--victim web", "--victim online").replace("14:03:05", clock)


def main() -> None:
    """Do it all and print the time of each command."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--without", action="append", default=[], metavar="COMMAND", help="leave one out")
    asked = parser.parse_args()
    if os.environ.get("KOORD_OWN_MOUNTS") != "1":
        made = [path for path in PRIVATE if not Path(path).exists()]
        for path in made:
            Path(path).mkdir(parents=True)
        try:
            words = ["unshare", "--mount", sys.executable, "-m", "tests.first_ten_minutes", *sys.argv[1:]]
            raise SystemExit(subprocess.run(words, env={**os.environ, "KOORD_OWN_MOUNTS": "1"}, check=False).returncode)
        finally:
            for path in made:
                Path(path).rmdir()
    for path in PRIVATE:
        # As an installation makes them: the agent refuses state that others than root may write.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", path], check=True)
    shutil.copy(ROOT / "deploy/systemd/koordlet.toml", SETTINGS)
    with tempfile.TemporaryDirectory(prefix="koord-first-") as directory:
        clone, logs = Path(directory) / "koord", Path(directory) / "logs"
        logs.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        raise SystemExit(follow(Run(clone, logs), frozenset(asked.without)))


def follow(run: Run, without: frozenset[str]) -> int:
    """Carry out all commands; return the exit status."""
    section, failures, began = "", 0, time.monotonic()
    for step in commands():
        if isinstance(step, Block):
            settle(step)
            continue
        if step.section != section:
            failures += run.end_section()
            section = step.section
            print(f"{step.page}, {section}", flush=True)
        how = step.how
        if how is None or isinstance(how, Elsewhere) or step.text in without:
            why = how.why if isinstance(how, Elsewhere) else "left out" if how else "NOT IN THE PLAN"
            failures += how is None
            print(f"         -  {step.text}: {why}", flush=True)
            continue
        started, problem = time.monotonic(), ""
        try:
            run.do(filled_in(step.text, run.looked_at), how)
        except Failed as failure:
            problem = f"  FAILED: {failure}"
            failures += 1
        print(f"  {time.monotonic() - started:6.1f} s  {step.text}{problem}", flush=True)
        if problem:
            print("\n".join(f"      | {line}" for line in run.log.read_text(errors="replace").splitlines()[-15:]))
            if step.text == "make run":  # nothing is set up for the others
                break
    failures += run.end_section()
    print(f"{time.monotonic() - began:.0f} s in all, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    main()
