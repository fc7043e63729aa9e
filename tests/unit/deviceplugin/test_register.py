"""Registration around a restart of the kubelet."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import register
from deviceplugin.metrics import Metrics
from deviceplugin.register import Registrar
from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Endpoint:
    """A server that only makes socket names."""

    resource = names.GPU_MEM
    streams = 0
    starts = 0
    options = api.DevicePluginOptions()

    async def start(self, folder: Path) -> Path:
        self.starts += 1
        return folder / f"{self.starts}.sock"

    async def stop(self) -> None:
        return


class Kubelet:
    """A kubelet that serves no resource of another plugin."""

    async def healthy(self) -> frozenset[str]:
        return frozenset()


async def tell(reason: str, sentence: str, _kind: str) -> None:
    raise AssertionError(f"{reason}: {sentence}")


async def test_answers_are_recalled_before_a_restarted_kubelet_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "RETRY_S", 0.01)
    endpoint: Any = Endpoint()
    kubelet: Any = Kubelet()
    socket = tmp_path / names.KUBELET_SOCKET
    socket.touch()  # nobody answers there: registration fails and is tried again
    recalled: list[tuple[str, int]] = []
    registrar = Registrar(
        endpoint, tmp_path, kubelet, Metrics(), tell, lambda resource: recalled.append((resource, endpoint.starts))
    )
    task = asyncio.create_task(registrar.run())
    try:
        async with asyncio.timeout(20):
            while endpoint.starts < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert recalled == [], "it is the kubelet that was there at the start"
            (tmp_path / "new").touch()
            (tmp_path / "new").replace(socket)
            while not recalled:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            starts = recalled[0][1]
            while endpoint.starts < starts + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [resource for resource, _ in recalled] == [names.GPU_MEM], "once for each start"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
