"""What starts the explorer: marimo's app behind a guard, in a process of its own, on an address that we choose.

JAX is that process's business: nothing here imports it, so that the address is there soon.
"""

import contextlib
import ipaddress
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Callable

from .. import compiled, extras, registry

# Settings to begin with, and what they are of.
PROBLEMS = {
    "phase-retrieval": "one teacher, through its square",
    "two-quadratic-teachers": "two of them",
    "committee": "two-layer, two teachers through erf",
    "one-direction": "single-index, one teacher through erf",
    "power-law": "the same, for inputs with a power-law spectrum",
    "two-clusters": "mixture, two classes",
}
_LIBRARY_NAMES = {
    "two-layer": "committee",
    "single-index": "one-direction",
    "mixture": "two-clusters",
}  # which other commands take
PROBLEM_VARIABLE = "DIMFREE_EXPLORER_PROBLEM"
STORE_VARIABLE = "DIMFREE_EXPLORER_STORE"
_PATIENCE = 60.0  # seconds for the server to answer


def explore(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = True,
    problem: str = "phase-retrieval",
    store: str | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Serve the explorer until Ctrl-C; the exit code of the server.

    Only this machine can reach it, unless another host is given; then the address has a token, without which nobody
    gets in.

    **Arguments:**

    - `host`, `port`: where to serve; a free port if left out.
    - `open_browser`: whether to open it in the browser.
    - `problem`: which problem is chosen at first.
    - `store`: the store of a study, whose phase diagram is shown.
    - `say`: what prints the address.
    """
    problem = preset(problem)
    if extras.absent(["marimo"]):
        raise _invalid(f"The explorer needs marimo: {extras.install('app')}")
    port = free_port(host, port)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    # By default a terminated process leaves at once, and its server would stay.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = start(host, port, token, {PROBLEM_VARIABLE: problem, STORE_VARIABLE: store or ""})
    try:
        reached = "127.0.0.1" if host == "0.0.0.0" else host  # all addresses of this machine: one that it can open
        address = f"http://{f'[{reached}]' if ':' in reached else reached}:{port}"
        _wait_until_it_answers(server, f"{address}/health")
        query = f"/?access_token={token}" if token else ""
        say(f"The explorer is at {address}{query}  (Ctrl-C ends it)")
        if token:
            say(
                f"It listens at {host}: others in the network who have this address, with its token, can compute on "
                "this machine. The connection is not encrypted."
            )
        if open_browser:
            webbrowser.open(address + query)
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        stop(server)
        signal.signal(signal.SIGTERM, before)


def preset(problem: str) -> str:
    """The explorer's problem of that name, which may be the library's, in either spelling."""
    name = registry.dashed(problem)
    name = _LIBRARY_NAMES.get(name, name)
    if name not in PROBLEMS:
        listed = ", ".join(f"{name} ({words})" for name, words in PROBLEMS.items())
        raise _invalid(f"problem = {problem!r} was given; the explorer has {listed}.")
    return name


def start(host: str, port: int, token: str | None, variables: dict[str, str]) -> subprocess.Popen:
    """The server's process."""
    command = [sys.executable, "-m", "dimfree.explorer.guard", "--host", host, "--port", str(port)]
    # Through its input: a token among the arguments could be read by every user of the machine.
    # In a process of ours nobody has to be told of double precision.
    environment = {"JAX_ENABLE_X64": "1"} | os.environ | compiled.settings() | variables
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
    assert server.stdin is not None
    server.stdin.write((token or "").encode())
    server.stdin.close()
    return server


def stop(server: subprocess.Popen) -> None:
    """End the server, in order if it can be."""
    if server.poll() is None:
        with contextlib.suppress(KeyboardInterrupt):
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_port(host: str, port: int | None) -> int:
    """The port if it is free, or any that is; an error says when it cannot be had."""
    if port is not None and not 1 <= port <= 65_535:
        raise _invalid(f"port {port} was given; ports are from 1 to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port or 0), family=family) as made:
            return made.getsockname()[1]
    except OSError as error:
        raise _invalid(
            f"The explorer cannot listen at {host}, port {port or 'any'}: {error}. Give another --host or --port."
        ) from None


def _wait_until_it_answers(server: subprocess.Popen, address: str) -> None:
    began = time.monotonic()
    while time.monotonic() - began < _PATIENCE:
        if server.poll() is not None:
            raise _invalid(f"The explorer's server ended at once, with exit code {server.returncode}; see above.")
        with contextlib.suppress(OSError):
            # Past any proxy that the environment names: this is about this machine.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(address, timeout=2):
                return
        time.sleep(0.1)
    raise _invalid(f"The explorer's server does not answer at {address} after {_PATIENCE:.0f} s.")


def _invalid(message: str) -> Exception:
    from ..errors import InvalidInput  # which imports JAX

    return InvalidInput(message)
