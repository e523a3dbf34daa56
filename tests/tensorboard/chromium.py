"""A headless Chromium that is told what to do through a pipe, and ends with the test, however that ends."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
    "--window-size=1300,900", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """A browser with one page."""

    def __init__(self, seconds=40.0):
        self._end = time.monotonic() + seconds
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4. It goes when the pipe is closed, and so when the
        # test's process dies.
        command = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
        flags = [*_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "chromium", *flags], pass_fds=(to_browser, from_browser), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the browser, and all processes that it started
        self._process.wait(10)
        self._profile.cleanup()

    def call(self, method, **parameters):
        """Sends a command of the DevTools protocol, and returns what comes back."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self):
        while b"\0" not in self._rest:
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("Chromium did not answer in time")
            got = os.read(self._read, 1 << 16)
            if not got:
                raise RuntimeError("Chromium has gone")
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, script):
        """The value of a script in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script):
        """Waits until a script has a value that is true, and returns it."""
        while True:
            try:
                value = self.run(script)
            except AssertionError:  # the page is still loading
                value = None
            if value:
                return value
            if time.monotonic() > self._end:
                raise TimeoutError(f"still not true: {script}; the page is {self.run('document.body.innerText')!r}")
            time.sleep(0.1)

    def click(self, script):
        """A click of the mouse on the middle of the element that a script returns."""
        self.run(f"({script}).scrollIntoView({{block: 'center'}})")
        box = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])(({script}).getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key):
        """A key of the keyboard."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)
