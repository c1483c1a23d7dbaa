"""The explorer as a visitor sees it: a real server, and Chromium."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PICTURE = ".dimfree-picture"


@contextlib.contextmanager
def server(*options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of `dimfree explore`, and its process, which ends its server before it ends."""
    command = [sys.executable, "-u", "-m", "dimfree", "explore", "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        yield found.group(), process
    finally:
        # Not by SIGINT, which a process that was started in the background of a shell ignores.
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stdout.close()


@contextlib.contextmanager
def visitor(downloads: Path | None = None) -> Iterator[tuple[Page, list[str]]]:
    """A page in Chromium, and what goes wrong in it: errors of the console, and requests that leave this machine."""
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser_path, "Chromium is needed: apt-get install chromium"
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        local = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file:")
        page.on("request", lambda request: None if request.url.startswith(local) else wrong.append(request.url))
        page.set_default_timeout(120_000)
        try:
            yield page, wrong
        finally:
            browser.close()


def card(page: Page, key: str) -> str:
    """What a card says."""
    return page.inner_text(f"[data-card={key}] .value")


def move(page: Page, slider: int, key: str) -> float:
    """Press a key on a slider, wait for another picture, and tell the seconds."""
    old = page.get_attribute(PICTURE, "src")
    began = time.perf_counter()
    page.get_by_role("slider").nth(slider).focus()
    page.keyboard.press(key)
    page.wait_for_function(f"old => document.querySelector('{PICTURE}')?.src !== old", arg=old)
    page.wait_for_selector(PICTURE)
    return time.perf_counter() - began


def download(page: Page, label: str, folder: Path) -> Path:
    """Click a button, and the file that comes."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label).or_(page.get_by_role("link", name=label)).first.click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
