"""Answers a question about pods that do not exist: on copies, in slices; nothing is booked, counted or reported."""

from __future__ import annotations

from collections.abc import Generator

from extender.engine.planning.attempt import PIECE, STEP
from extender.engine.policies.whatif.drafts import Drafts
from extender.engine.policies.whatif.forecast import Forecast, Policies
from extender.engine.policies.whatif.question import Answer, Question
from extender.engine.policies.whatif.sandbox import further
from extender.engine.state.observe import Observer
from extender.engine.types.sliced import Sliced


class WhatIf(Sliced[Answer]):
    """One answer in the making."""

    def __init__(self, policies: Policies, observer: Observer, question: Question, now: float) -> None:
        self._policies, self._observer, self._question, self._now = policies, observer, question, now
        super().__init__(self._answer())

    def _answer(self) -> Generator[int, None, Answer]:
        workloads = []
        for workload in Drafts(self._policies.context, self._observer, self._question, self._now).workloads():
            if workload is not None:
                workloads.append(workload)
            yield STEP
        yield PIECE
        outcomes = yield from Forecast(self._policies, (), self._now).outcomes(workloads)
        yield PIECE
        more = further(self._question.nodes)
        yield STEP * (1 + len(more))
        if not more:
            return Answer(outcomes)
        answer = Answer(outcomes, (yield from Forecast(self._policies, more, self._now).outcomes(workloads)))
        yield PIECE
        return answer
