"""GpuClasses and models of GPUs for people, as JSON."""

import msgspec

from extender.engine.cycle.engine import Engine
from extender.server.desk import Pieces
from extender.wire.listings import Classes, GpuClass, MissingClass, Model


def listing(engine: Engine) -> Pieces:
    """Every class and every kind of GPU, with how many there are, how many are wholly free and on how many nodes."""
    known = engine.classes.known
    classes, models = [], []
    for status in engine.classes.statuses():
        told = GpuClass(
            name=status.name,
            description=known[status.name].description,
            problem=status.problem or None,
            gpus=status.gpus,
            free=status.free,
            nodes=status.nodes,
            waiting=len(engine.classes.pods(status.name)),
        )
        classes.append(told)
        yield b""
    missing = [MissingClass(name=name, waiting=len(engine.classes.pods(name))) for name in engine.classes.missing()]
    for kind, nodes in engine.ledger.stock.kinds():
        model = Model(
            model=kind.model,
            mem=kind.mem,
            mem_mib=kind.mem_mib,
            clock_mhz=kind.clock_mhz,
            compute_capability=kind.cc,
            gpus=engine.ledger.stock.gpus[kind],
            free=engine.ledger.stock.free[kind],
            nodes=nodes,
        )
        models.append(model)
        yield b""
    yield msgspec.json.encode(Classes(classes=tuple(classes), missing=tuple(missing), models=tuple(models)))
