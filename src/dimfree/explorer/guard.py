"""The explorer's server: marimo's app behind a guard that answers only requests made to this address, by its own pages.

A web page can point a name of its own at this machine (DNS rebinding) or open a websocket to it. The browser then says
whose page it is, in `Host` and `Origin`.
"""

import argparse
import ipaddress
import socket
import sys
import threading
import urllib.parse
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

App = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable]


def guarded(app: App, host: str) -> App:
    """An ASGI app that refuses (403) a `Host` that is not a name of this server, and an `Origin` other than `Host`.

    **Arguments:**

    - `host`: where the server listens. That name is its own, and so is every IP address and the machine's name: nobody
      else can point them here. The port may be another, as through an SSH tunnel.
    """
    names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def is_ours(headers: list[tuple[bytes, bytes]]) -> bool:
        hosts, origins = ([value.decode("latin-1") for name, value in headers if name == wanted]
                          for wanted in (b"host", b"origin"))  # fmt: skip
        if len(hosts) != 1 or len(origins) > 1:
            return False
        name = _name(hosts[0])
        allowed = name is not None and (name in names or _is_address(name))
        return allowed and all(each in (f"http://{hosts[0]}", f"https://{hosts[0]}") for each in origins)

    async def answer(scope, receive, send):
        if scope["type"] == "lifespan" or is_ours(scope["headers"]):
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: 403
        else:
            words = b"This request was made to another name, or by another page. Open the address that was printed.\n"
            headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(words)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": words})

    return answer


def _name(host: str) -> str | None:
    """The name in a `Host` header, without its port; None if there is none."""
    try:
        parts = urllib.parse.urlsplit(f"//{host}")
        _ = parts.port  # which is checked when it is read
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _prepare() -> None:
    from . import views

    views.prepare()


def main() -> None:
    """Serve the notebook; the token, if there is one, is read from the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    token = sys.stdin.read()
    # While the browser opens, what it will show first is computed.
    threading.Thread(target=_prepare, daemon=True).start()
    import marimo
    import uvicorn

    notebook = str(Path(__file__).with_name("app.py"))
    app = marimo.create_asgi_app(quiet=True, token=token or None).with_app(path="", root=notebook).build()
    # The websocket is pinged, because proxies and laptops that sleep drop a silent one.
    uvicorn.run(
        guarded(app, given.host),
        host=given.host,
        port=given.port,
        log_level="error",
        timeout_keep_alive=300,
        ws_ping_interval=1,
        ws_ping_timeout=60,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
