"""The answer as JSON, in pieces. What the caller may not see is counted, not named."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.policies.whatif.question import Outcome
from extender.server.desk import Pieces, Refusal
from extender.server.visibility.items import Sight
from extender.server.whatif import words
from extender.server.whatif.question import question, read
from extender.wire import whatif as wire
from extender.wire.answers import Verdict
from protos.contract.allocation import Share

LONGEST_S = 30.0
"""Seconds after which an answer is given up."""
HIDDEN = "pods of other namespaces"


def pieces(engine: Engine, body: bytes, clock: Callable[[], float]) -> Pieces:
    """The answer to whoever may see everything; raises Refusal."""
    asked = read(body)
    yield b""
    status = yield from answered(engine, asked.spec, clock, Sight(None))
    yield msgspec.json.encode(status)


def answered(
    engine: Engine, spec: wire.Spec, clock: Callable[[], float], sight: Sight, namespace: str = ""
) -> Generator[bytes, None, wire.Status]:
    """The answer; pods of namespaces that are not in `sight` are counted. Raises Refusal."""
    now = clock()
    made = engine.what_if((yield from question(spec, engine.nodes, namespace)), now)
    while not made.advance():
        if clock() > now + LONGEST_S:
            made.drop()
            sentence = f"the answer took longer than {LONGEST_S:.0f} s: ask about fewer pods at once"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
        yield b""
    assert made.outcome is not None
    teller = _Teller(engine, sight, now)
    workloads = yield from teller.all(made.outcome.outcomes)
    verdict = teller.verdict(workloads)
    if not made.outcome.further:
        return wire.Status(verdict=verdict, workloads=workloads)
    more = yield from teller.all(made.outcome.further)
    return wire.Status(
        verdict=verdict, workloads=workloads, further=wire.Further(verdict=teller.verdict(more), workloads=more)
    )


class _Teller:
    def __init__(self, engine: Engine, sight: Sight, now: float) -> None:
        self._engine, self._sight, self._now = engine, sight, now

    def all(self, outcomes: Sequence[Outcome]) -> Generator[bytes, None, tuple[wire.Workload, ...]]:
        told = []
        for outcome in outcomes:
            told.append(self._workload(outcome))
            yield b""
        return tuple(told)

    def verdict(self, workloads: Sequence[wire.Workload]) -> Verdict:
        return words.of_all([each.verdict for each in workloads])

    def _workload(self, outcome: Outcome) -> wire.Workload:
        workload, first = outcome.workload, outcome.earliest
        seconds = max(0.0, first.start - self._now) if first is not None else 0.0
        victims = [victim for unit in outcome.victims for victim in unit.victims]
        seen = [victim for victim in victims if victim.ref.namespace in self._sight]
        gang = workload.gang
        return wire.Workload(
            kind="gang" if gang is not None else "pod",
            namespace=workload.namespace,
            name=gang.key.name if gang is not None else next(iter(workload.pods.values())).ref.name,
            verdict=words.verdict(outcome, seconds),
            **(msgspec.structs.asdict(outcome.reason) if outcome.reason is not None else {}),
            queue=outcome.queue,
            place=outcome.place,
            in_line=outcome.in_line,
            seconds=round(seconds, 1),
            sure=first is None or first.sure,
            after=self._named(first.last) if first is not None else "",
            warnings=workload.warnings,
            pods=self._places(outcome),
            victims=tuple(wire.Victim(namespace=v.ref.namespace, name=v.ref.name, node=v.node) for v in seen),
            other_victims=len(victims) - len(seen),
            forbidden=outcome.forbidden if self._sight.namespaces is None else HIDDEN if outcome.forbidden else "",
        )

    def _named(self, uid: str) -> str:
        pod = self._engine.pods.get(uid)
        return str(pod.ref) if pod is not None and pod.ref.namespace in self._sight else ""

    def _places(self, outcome: Outcome) -> tuple[wire.Place, ...]:
        roles: Mapping[str, str] = {seat.uid: seat.role for seat in outcome.workload.seats}
        placed = outcome.assignments
        return tuple(
            wire.Place(
                name=pod.ref.name,
                role=roles.get(uid, ""),
                node=placed[uid].node if uid in placed else "",
                gpus=_indexes(placed[uid].shares) if uid in placed else (),
            )
            for uid, pod in outcome.workload.pods.items()
        )


def _indexes(shares: Mapping[str, Sequence[Share]]) -> tuple[int, ...]:
    return tuple(sorted({share.index for own in shares.values() for share in own}))
