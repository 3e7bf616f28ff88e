"""Plain locust as an open loop: ``--rate`` makes each user class one that dispatches arrivals."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from typing import Any

from gevent import GreenletExit

from modelops_loadtests.client.connection import Connection
from modelops_loadtests.load.arrivals import arrivals
from modelops_loadtests.load.dispatch import Dispatcher
from modelops_loadtests.load.open_loop import OpenLoop
from modelops_loadtests.load.pool import Pool

_MOST = 5000.0
_AHEAD_SECONDS = 3600.0
"""Arrivals are made for so long at a time: how long locust runs is not known before."""


def add_options(parser: Any) -> None:
    """Add the options of an open loop; a listener for locust's ``init_command_line_parser``."""
    parser.add_argument(
        "--rate", type=_positive, default=0.0, help="open loop: requests a second, whatever -u says"
    )
    parser.add_argument("--arrivals", choices=("poisson", "constant", "gamma"), default="poisson")
    parser.add_argument(
        "--burstiness",
        type=_positive,
        default=1.0,
        help="of gamma: below 1 bursts, above 1 regular",
    )


def open_if_asked(environment: Any, **_: Any) -> None:
    """Replace the user classes by ones that dispatch; a listener for locust's ``init``.

    Several classes share the rate by their weights.
    """
    rate = getattr(environment.parsed_options, "rate", 0.0)
    if not rate:
        return
    classes = environment.user_classes
    whole = sum(cls.weight for cls in classes)
    environment.user_classes[:] = [_arriving(cls, rate * cls.weight / whole) for cls in classes]


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _MOST:
        raise ArgumentTypeError(f"{text!r} is no number above 0 and up to {_MOST:g}")
    return value


def _arriving(cls: Any, rate: float) -> Any:
    # One of each, whatever -u says: the schedule is the load.
    return type(
        cls.__name__,
        (cls,),
        {"fixed_count": 1, "tasks": [_dispatch], "rate": rate, "abstract": False},
    )


def _dispatch(user: Any) -> None:
    """Dispatch arrivals until locust stops this user."""
    options = user.environment.parsed_options
    sender = user.sender
    target, _ = type(user)._shared
    pool: Pool[Connection] = Pool(
        lambda: Connection(target, timeout=user.timeout, idle_timeout=user.idle_timeout)
    )
    loop = OpenLoop(sender, pool, stage=0, turns=1, think_s=0)
    start, block = time.perf_counter(), 0
    while True:
        schedule = arrivals(
            user.rate,
            _AHEAD_SECONDS,
            kind=options.arrivals,
            burstiness=options.burstiness,
            seed=user.seed(),
            stage=block,
        )
        dispatcher = Dispatcher(
            schedule,
            start + block * _AHEAD_SECONDS,
            f"{user.seed()}/{block}",
            loop.arrive,
            lambda error: user.environment.events.user_error.fire(
                user_instance=user, exception=error, tb=error.__traceback__
            ),
        )
        try:
            dispatcher.run()
        except GreenletExit:
            dispatcher.finished = True
            dispatcher.kill()
            pool.close()
            raise
        block += 1
