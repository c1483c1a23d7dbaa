"""Who can reach the explorer, and what is said when it cannot start."""

import asyncio
import socket
import sys
import urllib.request

import pytest
from browser import server

from commands import call
from dimfree.explorer import guard, serve
from processes import listening, printed_by


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("lecture.example.org", False),
    ],
)
def test_only_loopback_goes_without_a_token(host, own):
    assert serve.is_loopback(host) is own


def test_a_port_in_use_is_said_in_words():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = call("explore", "--no-browser", "--port", str(port))
    assert result.exit_code == 2
    assert f"port {port}" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--problem", "phase"], "problem = 'phase'"),
        (["--port", "70000"], "port 70000"),
        (["--host", "203.0.113.7"], "203.0.113.7"),
        (["--export", "no_such_directory/page.html"], "no_such_directory"),
        (["--export", "page.html", "--problem", "phase"], "problem = 'phase'"),
        (["--problem", "spiked-tensor"], "committee (two-layer, two teachers through erf)"),
        (["--export", "page.pdf"], "--export page.pdf was given; its name must end in .html."),
        (["--export", "page"], "must end in .html"),
    ],
)
def test_what_cannot_be_is_one_message_with_exit_code_2(options, words):
    result = call("explore", "--no-browser", *options)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("committee", "committee"),
        ("phase-retrieval", "phase-retrieval"),
        ("PhaseRetrieval", "phase-retrieval"),
        ("two-layer", "committee"),
        ("SingleIndex", "one-direction"),
    ],
)
def test_names_of_the_library_choose_the_problem_that_corresponds(given, chosen):
    assert serve.preset(given) == chosen


def test_a_page_of_another_kind_is_refused_before_anything_is_computed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dimfree.explorer.page", None)  # to import it would fail
    result = call("explore", "--export", str(tmp_path / "page.pdf"))
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_without_marimo_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(serve.extras, "version", lambda name: None)
    result = call("explore", "--no-browser")
    assert result.exit_code == 2
    assert 'pip install "marimo' in result.stderr


def test_starting_it_imports_no_jax():
    code = "import sys, dimfree.explorer, dimfree.cli.explore; print('jax' in sys.modules)"
    assert printed_by(code).strip() == "False"


@pytest.mark.slow
def test_beyond_this_machine_nobody_gets_in_without_the_token():
    def read(url: str) -> str:
        cookies = urllib.request.HTTPCookieProcessor()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
        with opener.open(url, timeout=30) as answer:
            return answer.read().decode()

    with server("--host", "0.0.0.0") as (address, process):
        assert "?access_token=" in address
        assert "others in the network" in process.stdout.readline()
        assert "dimfree explorer" in read(address)
        bare, token = address.split("?access_token=")
        assert len(token) >= 32
        for wrong in (bare, f"{bare}?access_token=guess"):  # asked for the token
            assert "dimfree explorer" not in read(wrong)


def test_it_listens_on_this_machine_only_and_its_server_ends_with_it():
    with server() as (address, process):
        assert listening(process.pid) == {"127.0.0.1"}
        process.terminate()
        assert process.wait(30) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 2)


# Requests of other pages: a name that points here (DNS rebinding), a websocket from elsewhere. Written by hand,
# because browsers and libraries set these headers themselves.

OWN = "127.0.0.1:{port}"
FOREIGN = {
    "a rebound name": ("evil.example:{port}", None),
    "a rebound name without its port": ("evil.example", None),
    "a name that begins as ours": ("127.0.0.1.evil.example:{port}", None),
    "a name and a user": ("127.0.0.1@evil.example:{port}", None),
    "no name": ("", None),
    "not a port": ("127.0.0.1:x", None),
    "two hosts": ("127.0.0.1:{port}\r\nHost: evil.example", None),
    "a page from elsewhere": (OWN, "http://evil.example"),
    "a page of another server of this machine": (OWN, "http://127.0.0.1:1"),
    "a page without an origin": (OWN, "null"),
    "a rebound page": ("evil.example:{port}", "http://evil.example:{port}"),
}
NAMES_OF_OURS = ("127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost:9999")  # the last through a tunnel
WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def answer(port: int, path: str, host: str, origin: str | None, more: str = "Connection: close\r\n") -> str:
    """The first lines of what the server answers."""
    lines = f"GET {path} HTTP/1.1\r\nHost: {host.format(port=port)}\r\n{more}"
    lines += "" if origin is None else f"Origin: {origin.format(port=port)}\r\n"
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(f"{lines}\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received and (part := connection.recv(65_536)):
            received += part
        while more.startswith("Connection: close") and (part := connection.recv(65_536)):
            received += part
    return received.decode("latin-1")


def test_requests_to_another_name_or_by_another_page_are_refused():
    with server() as (address, _):
        port = int(address.rpartition(":")[2])
        socket_path = "/ws?session_id=s_abc123"
        for host in NAMES_OF_OURS:
            assert "dimfree explorer" in answer(port, "/", host, None), host
            assert answer(port, "/", host, f"http://{host}").startswith("HTTP/1.1 200"), host
            opened = answer(port, socket_path, host, f"http://{host}", WEBSOCKET)
            assert opened.startswith("HTTP/1.1 101"), (host, opened)
        for name, (host, origin) in FOREIGN.items():
            for path, more in (
                ("/", "Connection: close\r\n"),
                ("/health", "Connection: close\r\n"),
                (socket_path, WEBSOCKET),
            ):
                got = answer(port, path, host, origin, more)
                # What is no HTTP at all is refused before: 400.
                assert got.startswith(("HTTP/1.1 403", "HTTP/1.1 400")), (name, path, got[:200])
                assert "dimfree explorer" not in got, (name, path)


def test_a_name_of_the_machine_is_its_own_where_it_listens_to_others():
    asked = []

    async def app(scope, receive, send):
        asked.append(dict(scope["headers"])[b"host"])

    async def nothing(*_):
        return None

    guarded = guard.guarded(app, "lecture.example.org")
    for host in ("lecture.example.org:8000", socket.gethostname(), "10.0.0.7:8000", "other.example.org:8000"):
        asyncio.run(guarded({"type": "http", "headers": [(b"host", host.encode())]}, nothing, nothing))
    assert asked == [b"lecture.example.org:8000", socket.gethostname().encode(), b"10.0.0.7:8000"]
