"""One engine host from start to end: load, prove, serve, report; gone when its supervisor is."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from modelops.config import ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops_servers import logs
from modelops_servers.control import Control
from modelops_servers.dataplane.failure import told
from modelops_servers.host.reactor import Reactor
from modelops_servers.loading import prepare
from modelops_servers.pulse import Pulse

HEARTBEAT_SECONDS = 0.5
_BACKLOG = 64


def main(control_fd: int) -> int:
    """Serve one replica until the supervisor says stop (0) or is gone; 1 where loading failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure()
    control = Control(control_fd)
    messages = control.messages()
    first = next(messages, None)
    if first is None:
        return 1
    pulse = Pulse()
    threading.Thread(target=_beat, args=(control, pulse), name="heartbeat", daemon=True).start()
    try:
        prepared = prepare(ModelConfig.model_validate(first["model"]))
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must be told
        control.send({"event": "failed", "error": told(_known(error))})
        return 1
    path = Path(first["socket"])
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        reactor = Reactor(listener, prepared, pulse)
        threading.Thread(
            target=_obey, args=(messages, reactor), name="control", daemon=True
        ).start()
        pulse.set_state("ready", prepared.engine.health().why)
        control.send({"event": "ready", "describe": prepared.describe(), **pulse.report()})
        reactor.serve()
    pulse.set_state("stopped", "stopped")
    prepared.engine.stop(None)
    return 0


def _beat(control: Control, pulse: Pulse) -> None:
    """Say every half second how it is; native calls let this thread run."""
    rest = threading.Event()
    while control.send({"event": "beat", **pulse.report()}):
        rest.wait(HEARTBEAT_SECONDS)
    os._exit(1)


def _obey(messages: Any, reactor: Reactor) -> None:
    for message in messages:
        if message.get("op") == "stop":
            reactor.stop()
            return
    # The supervisor is gone, and with it the reason to be here; a native call cannot be waited for.
    os._exit(1)


def _known(error: Exception) -> ModelopsError:
    if isinstance(error, ModelopsError):
        return error
    return EngineError(f"loading failed: {type(error).__name__}: {error}")
