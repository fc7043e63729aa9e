"""An admission webhook that the API server asks about every Binding: it passes, waits for a while, or fails.

So a test stops the world between two Bindings of one gang, and has some of them end in errors.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.cluster.api import ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.pki import Authority, encoded
from tests.cluster.process import wait_for

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAME = "bindings.example.com"
LONGEST_S = 30
"""Seconds that the API server waits for an answer at most; then the Binding fails."""
NOBODY = "nobody-there"


class Bindings:
    """A context manager; inside it every Binding of the namespace `default` passes by here."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.fails: Callable[[str], bool] = lambda _pod: False
        """Whether the Binding of the pod of that name fails, as if the API server had lost its store."""
        self.passed: list[str] = []
        self.kept: list[str] = []
        """Pods whose Bindings were let through, and those whose Bindings had to wait."""
        self._left: int | None = None
        self._lock, self._free = threading.Lock(), threading.Event()
        self._free.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        authority = Authority(self._cluster.dir / f"webhook-{self._server.server_port}")
        pair = authority.issue("webhook", user="webhook", sans=["IP:127.0.0.1"])
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._cluster.api.post(CONFIGURATIONS, self._configuration(encoded(authority.ca.certificate)))
        wait_for(self._asked, 30, "Bindings that pass by the webhook")
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()
        self._cluster.api.delete(f"{CONFIGURATIONS}/{NAME}")
        self._server.shutdown()
        self._server.server_close()

    def stop_after(self, count: int) -> None:
        """So many pass from now on, the others wait until `release`, or until the API server waits no longer."""
        with self._lock:
            self.passed, self.kept, self._left = [], [], count
            self._free.clear()

    def release(self) -> None:
        """Those that wait pass, and all to come."""
        with self._lock:
            self._left = None
            self._free.set()

    def _asked(self) -> bool:
        """Whether the API server asks us already, about a pod that there is not."""
        body = {"metadata": {"name": NOBODY}, "target": {"kind": "Node", "name": NOBODY}}
        try:
            self._cluster.api.post(f"/api/v1/namespaces/default/pods/{NOBODY}/binding", body)
        except ApiError as error:
            if error.status != 404:
                raise
        return NOBODY in self.passed

    def _admit(self, pod: str) -> Json:
        with self._lock:
            waits = self._left is not None and self._left <= 0
            if self._left is not None and not waits:
                self._left -= 1
            (self.kept if waits else self.passed).append(pod)
        if waits:
            self._free.wait(LONGEST_S)
        if self.fails(pod):
            return {"allowed": False, "status": {"code": 500, "message": "etcdserver: request timed out"}}
        return {"allowed": True}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        admit = self._admit

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
                response = {"uid": request["uid"], **admit(request["name"])}
                review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
                body = json.dumps(review).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the API server waits no longer
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                return

        return Handler

    def _configuration(self, ca: str) -> Json:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
        namespace = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
        webhook = {
            "name": NAME,
            "clientConfig": {"url": f"https://127.0.0.1:{self._server.server_port}/", "caBundle": ca},
            "rules": [rule],
            "namespaceSelector": namespace,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": LONGEST_S,
            "failurePolicy": "Fail",
        }
        return {"metadata": {"name": NAME}, "webhooks": [webhook]}
