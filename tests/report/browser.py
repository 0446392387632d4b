"""A real headless Chromium, driven through chromedriver's own protocol (W3C WebDriver over HTTP)."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = (
    ""
    if CHROMIUM and DRIVER
    else "no Chromium with its chromedriver on PATH (Debian: apt-get install chromium chromium-driver)"
)
STARTED = "started successfully on port "
ANSWER = 60.0  # seconds
LEAVING = 5.0  # seconds


class Browser:
    """One browser with an empty profile."""

    def __init__(self) -> None:
        """Start it."""
        self._profile = tempfile.mkdtemp()
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": self._profile},  # what the browser forgets goes with its profile
        )
        try:
            line = next(line for line in self._driver.stdout if STARTED in line)
            self._port = int(line.partition(STARTED)[2].strip().rstrip("."))
            options = {"args": [*FLAGS, f"--user-data-dir={self._profile}"], "binary": CHROMIUM}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self._end_driver()
            raise

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(value["message"])
        return value

    def _post(self, path: str, body: Any) -> Any:
        return self._ask("POST", f"{self._session}{path}", body)

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Do something that only the browser's own tools can."""
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, file: Path, *, width: int = 1200, height: int = 900, scheme: str = "light") -> None:
        """Open a file in a window of this size for somebody who likes light or dark."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._post("/url", {"url": file.as_uri()})
        self._post("/timeouts", {"script": 10_000})
        self.script("""
            const done = arguments[arguments.length - 1];
            document.fonts.ready.then(() => requestAnimationFrame(() => requestAnimationFrame(done)));
        """, wait=True)  # fmt: skip

    def script(self, text: str, *arguments: Any, wait: bool = False) -> Any:
        """Run a script in the page; return what it returns, or hands to its last argument where it has to wait."""
        return self._post(f"/execute/{'async' if wait else 'sync'}", {"script": text, "args": list(arguments)})

    def drag(self, selector: str, began: float, ended: float) -> None:
        """Drag the mouse across an element, from one part of its width to another."""
        left, top, width, height = self.script(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", selector,
        )  # fmt: skip
        y = top + height / 2
        places = [left + width * (began + (ended - began) * step / 4) for step in range(5)]
        for kind, x in [("mouseMoved", places[0]), ("mousePressed", places[0]),
                        *(("mouseMoved", x) for x in places[1:]), ("mouseReleased", places[-1])]:  # fmt: skip
            self.mouse(kind, x, y)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move, press or release the mouse."""
        held = 0 if kind == "mouseReleased" else 1
        self.devtools("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=held, clickCount=1)

    def click(self, selector: str) -> None:
        """Click on the middle of an element, which is scrolled into view."""
        left, top, width, height = self.script(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", selector,
        )  # fmt: skip
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, left + width / 2, top + height / 2)

    def key(self, name: str, text: str = "") -> None:
        """Press a key where the focus is.  `text`: what it types."""
        for kind in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=name, text=text if kind == "keyDown" else "")

    def clipboard(self) -> str:
        """Return what was copied last."""
        self.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        return self.script("navigator.clipboard.readText().then(arguments[arguments.length - 1])", wait=True)

    def before_each_page(self, script: str) -> None:
        """Run a script in each page before its own."""
        self.devtools("Page.addScriptToEvaluateOnNewDocument", source=script)

    def pixels(self, selector: str) -> bytes:
        """Return what is drawn on the canvas of an element, as a PNG."""
        data = self.script("return document.querySelector(arguments[0]).toDataURL()", f"{selector} canvas")
        return base64.b64decode(data.partition(",")[2])

    def paper(self) -> bytes:
        """Return the page as it is printed, as a PDF."""
        return base64.b64decode(self._post("/print", {}))

    def complaints(self) -> list[str]:
        """Return what the console said since the last question."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def requests(self, file: Path) -> set[str]:
        """Return the addresses that the page in `file` asked for since the last question."""
        entries = [json.loads(entry["message"])["message"] for entry in self._post("/se/log", {"type": "performance"})]
        asked = [entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        return {one["request"]["url"] for one in asked if one["documentURL"] == file.as_uri()}

    def close(self) -> None:
        """End it."""
        try:
            self._ask("DELETE", self._session)
        finally:
            self._end_driver()

    def _end_driver(self) -> None:
        self._driver.terminate()
        self._driver.wait(10)
        self._driver.stdout.close()
        deadline = time.monotonic() + LEAVING
        # The browser's last process can still write to it.
        while Path(self._profile).exists() and time.monotonic() < deadline:
            shutil.rmtree(self._profile, ignore_errors=True)
