"""What one arrival does: take a connection, send, and where it is a conversation, go on."""

from __future__ import annotations

import time

from gevent import GreenletExit, sleep

from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.request import Request
from modelops_loadtests.load.conversation import Conversation
from modelops_loadtests.load.dispatch import Arrival
from modelops_loadtests.load.pool import Pool
from modelops_loadtests.samples import Sample
from modelops_loadtests.sending import Sender, Sent


class OpenLoop:
    """Sends the arrivals of one stage; each in a greenlet of its own."""

    def __init__(
        self, sender: Sender, pool: Pool[Connection], *, stage: int, turns: int, think_s: float
    ) -> None:
        self._sender, self._pool = sender, pool
        self._stage, self._turns, self._think_s = stage, turns, think_s
        self.finished = False
        """Set when no further turn may be sent."""

    def arrive(self, arrival: Arrival) -> None:
        """Send an arrival's request, or all of its conversation's."""
        conversation = Conversation(
            self._sender.scenario,
            arrival.rng(),
            turns=self._turns,
            number=arrival.number,
            lengths=arrival.lengths,
        )
        request: Request | None = conversation.first()
        due = arrival.scheduled
        while request is not None:
            sent = self._send(request, due, conversation.labels)
            request = conversation.after(sent)
            if request is not None:
                due = time.perf_counter() + self._think_s
                sleep(self._think_s)
                if self.finished:
                    return

    def _send(self, request: Request, due: float, labels: dict[str, int]) -> Sent:
        sender = self._sender
        scheduled = due - sender.zero
        try:
            connection = self._pool.take()
        except GreenletExit:
            # It waited for a connection until the end.
            if sender.sink is not None:
                now = time.perf_counter() - sender.zero
                sender.sink.append(
                    Sample(
                        sent=now,
                        end=now,
                        outcome="cut",
                        scheduled=scheduled,
                        stage=self._stage,
                        process=sender.process,
                        scenario=request.name,
                        conversation=labels.get("conversation"),
                        turn=labels.get("turn"),
                    )
                )
            raise
        try:
            return sender.send(
                connection, request, scheduled=scheduled, stage=self._stage, **labels
            )
        finally:
            self._pool.give_back(connection)
