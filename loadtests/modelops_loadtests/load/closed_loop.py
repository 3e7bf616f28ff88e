"""The users of a closed loop: each sends again when its reply has come, in conversations or not."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from gevent import sleep
from locust.exception import StopUser

from modelops_loadtests.client.request import Request
from modelops_loadtests.client.target import Target
from modelops_loadtests.load.conversation import Conversation
from modelops_loadtests.sending import Sender
from modelops_loadtests.users import ScenarioUser

_REFUSED_PAUSE = 0.1


class StageUser(ScenarioUser):
    """A locust user whose samples say the stage and, where there are several turns, the turn."""

    stage: ClassVar[int] = 0
    turns: ClassVar[int] = 1
    think_s: ClassVar[float] = 0.0
    _conversation: Conversation | None = None
    _request: Request | None = None
    _talks = 0

    @classmethod
    def share(cls, target: Target, sender: Sender, process: int) -> None:
        """Let all users send by this; numbers of different processes do not meet."""
        cls._shared = (target, sender)
        ScenarioUser._numbers = count(process << 20)

    def on_start(self) -> None:
        """Connect, and begin anew."""
        super().on_start()
        self._conversation = self._request = None

    def talk(self) -> None:
        """Send the next request of the conversation, or the first of a new one."""
        if self.finished:
            raise StopUser
        if self._conversation is None or self._request is None:
            self._talks += 1
            # Numbers of one user's conversations do not meet another's.
            number = (self._talks << 20) + self.number
            scenario = self.sender.scenario
            self._conversation = Conversation(scenario, self.rng, turns=self.turns, number=number)
            self._request = self._conversation.first()
        sent = self.sender.send(
            self.connection,
            self._request,
            user=self.number,
            stage=self.stage,
            **self._conversation.labels,
        )
        self._request = self._conversation.after(sent)
        if self._request is not None and self.think_s:
            sleep(self.think_s)
        if sent.sample.error == "refused":
            # A refusal costs no time: without a pause a server that is gone is hammered.
            sleep(_REFUSED_PAUSE)


# Not by the decorator: locust would add it to the tasks of the class above.
StageUser.tasks = [StageUser.talk]
