"""A status port that answers what a test tells it, over real HTTP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.cli import books


class StatusPort:
    """Answers GET and POST of each path with its body; `code` for all."""

    def __init__(self) -> None:
        self.code, self.answers = 200, books.answers()
        self.posted = b""
        """The last body."""
        port = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = port.answers.get(self.path)
                self.send_response(404 if body is None else port.code)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def do_POST(self) -> None:
                port.posted = self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def status_port() -> Iterator[StatusPort]:
    port = StatusPort()
    thread = threading.Thread(target=port.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield port
    port.server.shutdown()
    thread.join()
    port.server.server_close()
