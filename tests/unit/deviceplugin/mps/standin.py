"""A stand-in of nvidia-cuda-mps-control: the daemon in the foreground, its commands of both protocols, and a client.

The daemon keeps everything in the folder of its pipes. Files in the folder of its logs make it unkind:

- `refuse`: it does not start; `wedged`: it takes commands and never answers; `deaf`: it takes no clients;
- `slow`: clients wait long until they are connected;
- `fault`: its server is blocked; `stuck`: clients that have ended stay listed.
"""

import contextlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/tmp/nvidia-log"))
SERVER = "import sys; sys.stdin.read()"


def unkind(name: str) -> bool:
    return (LOGS / name).exists()


def note(line: str) -> None:
    with (LOGS / "commands").open("a") as file:
        file.write(line + "\n")


class Daemon:
    """Servers by name, namespaces with limits, and clients by process ID."""

    def __init__(self, protocol: int, users: bool) -> None:
        self.protocol, self.users = protocol, users
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.clients: dict[int, tuple[str, socket.socket]] = {}
        self.limits: dict[str, str] = {}
        self.done = threading.Event()

    def answer(self, words: list[str]) -> str:
        """What a command prints; raises ValueError for a refusal."""
        note(" ".join(words))
        name, *rest = words
        if name == "client!":
            return ""
        if name in ("quit", "-q"):
            self.end()
            return ""
        return self._new(words) if self.protocol == 3 else self._old(name, rest)

    def _old(self, name: str, rest: list[str]) -> str:
        match name:
            case "start_server":
                self._start("", "0")
                return ""
            case "get_server_list":
                return "\n".join(str(server.pid) for server in self._alive())
            case "get_server_status":
                return "FAULT" if unkind("fault") else "ACTIVE"
            case "get_client_list":
                return "\n".join(map(str, self._listed()))
            case "terminate_client":
                self._terminate(int(rest[1]))
                return ""
            case _ if name.startswith("set_"):
                self.limits[" ".join([name, *rest[:-1]])] = rest[-1]
                (PIPES / "limits").write_text(json.dumps(self.limits))
                return f"{rest[-1]}\n" if "percentage" in name else ""
        raise ValueError(f"unknown command {name}")

    def _new(self, words: list[str]) -> str:
        options = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--") and "=" in word)
        name = words[2] if len(words) > 2 else ""
        match words[:2]:
            case ["server", "create"]:
                self._start(name, options["uid"])
                (PIPES / name).mkdir()
                return ""
            case ["server", "list"]:
                state = "Fault" if unkind("fault") else "Ready"
                return "\n".join(
                    f"{n},0,{s.pid},{state},{PIPES / n},GPU-0,-" for n, s in self.servers.items() if s.poll() is None
                )
            case ["client", "list"]:
                return "\n".join(f"{pid},gpu,0,default,python" for pid in self._listed())
            case ["client", "terminate"]:
                self._terminate(int(name))
                return ""
            case ["namespace", "create"]:
                if name in self.namespaces:
                    raise ValueError("namespace exists")
                self.namespaces[name] = {}
                (PIPES / options["server"] / name).mkdir()
                return ""
            case ["namespace", "set"]:
                self.namespaces[name] |= options
                return ""
            case ["namespace", "delete"]:
                del self.namespaces[name]
                (PIPES / options["server"] / name).rmdir()
                return ""
            case ["namespace", "list"]:
                rows = {"default": {}, **self.namespaces}
                return "\n".join(self._row(n, limits) for n, limits in rows.items())
        raise ValueError(f"unknown command {words}")

    @staticmethod
    def _row(name: str, limits: dict[str, str]) -> str:
        mem, percent = limits.get("pinned-memory-limit", "-"), limits.get("active-thread-percentage", "100")
        return f"{name},gpu,Ready,{mem},{float(percent):.2f},0,{PIPES / 'gpu' / name}"

    def _start(self, name: str, uid: str) -> None:
        if uid != "0" or self._alive():
            raise ValueError("server exists")
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE)
        self.servers[name or str(server.pid)] = server

    def _alive(self) -> list["subprocess.Popen[bytes]"]:
        return [server for server in self.servers.values() if server.poll() is None]

    def _listed(self) -> list[int]:
        for pid in list(self.clients):
            if not Path(f"/proc/{pid}").exists() and not unkind("stuck"):
                del self.clients[pid]
        return sorted(self.clients)

    def _terminate(self, pid: int) -> None:
        _, connection = self.clients.pop(pid)
        connection.sendall(b"terminated\n")

    def end_with_input(self) -> None:
        sys.stdin.read()
        self.end()

    def end(self) -> None:
        for server in self.servers.values():
            server.kill()
            server.wait()
        self.done.set()


def serve(protocol: int, users: bool) -> int:
    if unkind("refuse"):
        return 1
    daemon = Daemon(protocol, users)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words = self.rfile.readline().decode().split()
            if unkind("wedged"):
                time.sleep(3600)
            if words[0] == "client!":
                self._client(int(words[1]), words[2])
                return
            try:
                status, said = 0, daemon.answer(words)
            except (ValueError, KeyError) as error:
                status, said = 1, str(error)
            self.wfile.write(json.dumps([status, said]).encode() + b"\n")

        def _client(self, pid: int, folder: str) -> None:
            if unkind("slow"):
                time.sleep(3600)
            if unkind("deaf") or not daemon._alive():
                self.wfile.write(b"refused\n")
                return
            daemon.clients[pid] = (folder, self.connection)
            self.wfile.write(b"connected\n")
            with contextlib.suppress(OSError):
                self.rfile.read()
            if not unkind("stuck"):
                daemon.clients.pop(pid, None)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(PIPES / "control"), Handler) as server:
        (PIPES / "protocol").write_text(str(protocol))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=daemon.end_with_input, daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: daemon.done.set())
        daemon.done.wait()
        daemon.end()
        (PIPES / "control").unlink(missing_ok=True)
    return 0


def command(words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(PIPES / "control"))
        except OSError:
            print("Cannot find MPS control daemon process")
            return 1
        connection.sendall(" ".join(words).encode() + b"\n")
        status, said = json.loads(connection.makefile().readline())
    print(said)
    return int(status)


def client(words: list[str]) -> int:
    """`client! once`, or until it is terminated; the folder of its pipes says which namespace it is in."""
    control = next(folder / "control" for folder in (PIPES, *PIPES.parents) if (folder / "control").exists())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(control))
        connection.sendall(f"client! {os.getpid()} {PIPES}\n".encode())
        stream = connection.makefile()
        said = stream.readline().strip()
        print(said, flush=True)
        if said != "connected" or "once" in words:
            return int(said != "connected")
        print(stream.readline().strip(), flush=True)
    return 0


def main(arguments: list[str]) -> int:
    if "client!" in arguments:
        return client(arguments)
    if "-f" in arguments:
        return serve(3 if arguments[:2] == ["-p", "3"] else 2, "-m" in arguments or "-multiuser-server" in arguments)
    words = arguments[2:] if arguments[:2] == ["-p", "3"] else arguments
    if words == ["-h"]:
        known = os.environ.get("STANDIN_PROTOCOL", "3") == "3"
        print("modules: server, namespace, client" if known else "unknown option -p")
        return 0
    return command(words or sys.stdin.readline().split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
