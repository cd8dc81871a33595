# SPDX-License-Identifier: GPL-2.0-only
"""Drives a headless Chromium through its pipe: no port is opened, nothing is fetched."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
SETTLE_S = 0.5
ANSWER_S = 60.0
MEDIA = "Emulation.setEmulatedMedia"


class Browser:
    """One page in a browser that has no network; a context manager.

    Attributes:
        requests: the addresses that the page asked for, itself among them.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._number = 0
        self._session: str | None = None
        self._buffer = b""

    def __enter__(self) -> Self:
        assert PROGRAM
        self._home = TemporaryDirectory()
        near, self._to = os.pipe()
        self._from, far = os.pipe()
        os.set_blocking(self._from, False)
        # The pipe's ends must be 3 and 4 in the browser; here they are elsewhere.
        to_read, from_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (near, far))
        os.close(near)
        os.close(far)
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{to_read} 4>&{from_write}',
                "bash",
                PROGRAM,
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={self._home.name}",
            ],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        shutil.rmtree(self._home.name, ignore_errors=True)
        self._home.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the browser's answer to a command of its DevTools protocol.

        Raises:
            RuntimeError: it refuses, or has ended.
            TimeoutError: it does not answer.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + ANSWER_S
        while time.monotonic() < end:
            for found in self._messages():
                if found.get("id") == self._number:
                    if "error" in found:
                        raise RuntimeError(f"{method}: {found['error']}")
                    return found["result"]
            if self._process.poll() is not None:
                raise RuntimeError(f"{PROGRAM} ended with {self._process.returncode}")
            time.sleep(0.02)
        raise TimeoutError(method)

    def load(self, path: Path, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """Show a file in a window of a width in pixels."""
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(MEDIA, media=media, features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + ANSWER_S
        while self.value("document.readyState") != "complete" and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(SETTLE_S)

    def value(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG file."""
        made = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def print_to(self, path: Path) -> None:
        """Write the page as a PDF file, as it would be printed."""
        self.call(MEDIA, media="", features=[])
        made = self.call("Page.printToPDF", preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def _messages(self) -> list[dict[str, Any]]:
        try:
            while chunk := os.read(self._from, 1 << 20):
                self._buffer += chunk
        except BlockingIOError:
            pass
        *whole, self._buffer = self._buffer.split(b"\0")
        found = [json.loads(one) for one in whole]
        self.requests += [
            one["params"]["request"]["url"]
            for one in found
            if one.get("method") == "Network.requestWillBeSent"
        ]
        return found
