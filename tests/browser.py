"""A headless Chromium, driven by the WebDriver protocol over plain HTTP; tests skip where there is none."""

import base64
import json
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_for

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Escape": "\ue00c"}
_ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    """One session of one window."""

    def __init__(self, port: int, dark: bool, profile: Path) -> None:
        self._base = f"http://127.0.0.1:{port}"
        # Chromium has no preference for the scheme of pages; a feature forces it.
        scheme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        options = {"args": [*_ARGUMENTS, *scheme, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        """Load a page."""
        self._call("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def size(self, width: int, height: int) -> None:
        """Give the window a size."""
        self._call("POST", "/window/rect", {"width": width, "height": height})

    def screenshot(self, path: Path) -> None:
        """Write what the window shows."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def errors(self) -> list[str]:
        """Return what was written to the console as an error since the last call."""
        lines = self._call("POST", "/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] == "SEVERE"]

    def background(self) -> int:
        """Return the brightness of the page's background, 0..255."""
        colour = self.run("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) // 3

    def close(self) -> None:
        """End the session."""
        self._call("DELETE", "")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._base}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]


def picture(window: Browser, name: str, tmp_path: Path) -> None:
    """Keep what the window shows in the directory KOORD_SCREENSHOTS, else with the test."""
    window.screenshot(Path(os.environ.get("KOORD_SCREENSHOTS") or tmp_path) / f"{name}.png")


@contextmanager
def browser(directory: Path, *, dark: bool = False) -> Iterator[Browser]:
    """A browser for the length of the block; skips the test where Chromium and its driver are not installed."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} here: install the packages chromium and chromium-driver")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (directory / "chromedriver.log").open("wb") as log:
        driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=log, stderr=log)
        try:
            wait_for(lambda: _answers(port))
            session = Browser(port, dark, directory / "profile")
            try:
                yield session
            finally:
                session.close()
        finally:
            driver.terminate()
            driver.wait(30)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as response:
            return bool(json.load(response)["value"]["ready"])
    except OSError:
        return False
