"""A minimal extender: offers the first node by name, binds itself.

Run: python -m tests.sim.standin_extender PORT STATUS_PORT KUBECONFIG
"""

import json
import sys
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web


def app(api: str) -> web.Application:
    async def filter_(request: web.Request) -> web.Response:
        args = await request.json()
        if "refuse" in args["Pod"]["metadata"].get("labels", {}):
            return web.json_response({"NodeNames": [], "FailedNodes": {"*": "no GPU is free"}})
        return web.json_response({"NodeNames": [min(args["NodeNames"])]})

    async def bind(request: web.Request) -> web.Response:
        args = await request.json()
        metadata = {"name": args["PodName"], "uid": args["PodUID"], "annotations": {"placed-by": "stand-in"}}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": args["Node"]}}
        url = f"{api}/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        async with aiohttp.ClientSession() as session, session.post(url, json=binding) as answer:
            body = await answer.json()
        return web.json_response({} if answer.status == 201 else {"Error": json.dumps(body)})

    async def ready(_request: web.Request) -> web.Response:
        return web.Response()

    made = web.Application()
    made.router.add_post("/scheduler/filter", filter_)
    made.router.add_post("/scheduler/bind", bind)
    made.router.add_get("/readyz", ready)
    return made


def server(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


async def serve(ports: list[int], api: str) -> None:
    runner = web.AppRunner(app(api))
    await runner.setup()
    for port in ports:
        await web.TCPSite(runner, "127.0.0.1", port).start()


if __name__ == "__main__":
    import asyncio

    async def main() -> None:
        await serve([int(sys.argv[1]), int(sys.argv[2])], server(Path(sys.argv[3])))
        await asyncio.Event().wait()

    asyncio.run(main())
