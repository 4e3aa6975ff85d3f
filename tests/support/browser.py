"""A real browser, without a window and without a network of its own."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PATIENCE = 60.0
FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
    "disable-background-timer-throttling", "disable-renderer-backgrounding",
)  # fmt: skip


@contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """Chromium, with its profile in a folder; what needs it is skipped where there is none."""
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("there is no Chromium with its driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"user-data-dir={folder}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options, webdriver.ChromeService(driver))
    session.get("about:blank")  # it would begin with a page of its own
    try:
        yield session
    finally:
        session.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as session:
        yield session


def requests_of(browser: Any) -> list[str]:
    """The addresses that were asked for since the last call, but for pages of the browser itself."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith("chrome")]


def complaints(browser: Any) -> list[str]:
    """Errors and warnings in the console of the page since the last call."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def until(browser: Any, script: str, *arguments: Any) -> Any:
    """The value of a script as soon as it is true."""
    ends = time.monotonic() + _PATIENCE
    while not (value := browser.execute_script(script, *arguments)):
        if time.monotonic() > ends:
            raise AssertionError(f"still {value!r} after {_PATIENCE:g} s: {script}")
        time.sleep(0.05)
    return value


def resize(browser: Any, width: int, height: int = 900, *, dark: bool = False) -> None:
    """The size of the window, and whether its system is dark."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
