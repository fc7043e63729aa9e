"""A status port that answers what a test tells it, over real HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli import books


class StatusPort:
    """Answers requests of each path with its body; `code` for all. Keeps what is written."""

    def __init__(self) -> None:
        self.code, self.answers = 200, books.answers()
        self.warning = ""
        """The header of each answer."""
        self.written: list[tuple[str, str, dict[str, Any]]] = []
        """Method, path and body."""
        self.tokens: set[str] = set()
        """The header Authorization of each request."""
        self.posted = b""
        """The last body of a POST."""
        port = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                port.tokens.add(self.headers.get("Authorization", ""))
                body = port.answers.get(self.path)
                self.send_response(404 if body is None else port.code)
                self.send_header("Content-Length", str(len(body or b"")))
                if port.warning:
                    self.send_header("Warning", port.warning)
                self.end_headers()
                self.wfile.write(body or b"")

            def do_POST(self) -> None:
                port.posted = self.rfile.read(int(self.headers["Content-Length"]))
                port.written.append((self.command, self.path, json.loads(port.posted)))
                self.do_GET()

            do_PATCH = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig in which this is the API server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path


@pytest.fixture
def status_port() -> Iterator[StatusPort]:
    port = StatusPort()
    thread = threading.Thread(target=port.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield port
    port.server.shutdown()
    thread.join()
    port.server.server_close()
