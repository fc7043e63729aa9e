"""GpuClasses and models of GPUs for people, as JSON."""

from typing import Any

from extender.engine.engine import Engine


def listing(engine: Engine) -> dict[str, Any]:
    """Every class and every kind of GPU, with how many there are, how many are wholly free and on how many nodes."""
    known = engine.classes.known
    return {
        "classes": [
            {
                "name": status.name,
                "description": known[status.name].description,
                "problem": status.problem or None,
                "gpus": status.gpus,
                "free": status.free,
                "nodes": status.nodes,
                "waiting": len(engine.classes.pods(status.name)),
            }
            for status in engine.classes.statuses()
        ],
        "missing": [{"name": name, "waiting": len(engine.classes.pods(name))} for name in engine.classes.missing()],
        "models": [
            {
                "model": kind.model,
                "mem": kind.mem,
                "memMiB": kind.mem_mib,
                "clockMHz": kind.clock_mhz,
                "computeCapability": kind.cc,
                "gpus": engine.ledger.stock.gpus[kind],
                "free": engine.ledger.stock.free[kind],
                "nodes": nodes,
            }
            for kind, nodes in engine.ledger.stock.kinds()
        ],
    }
