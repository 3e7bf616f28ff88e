from __future__ import annotations

import socket
import struct
import time

import pytest

from modelops_loadtests.client.clock import SO_TIMESTAMPNS, KernelClock


@pytest.mark.parametrize("moved", [3600.0, -3600.0, 0.05])
def test_a_clock_that_is_set_moves_no_stamp(moved: float) -> None:
    clock = KernelClock()
    clock._measure(time.perf_counter())
    clock._offset += moved  # as if the realtime clock had been set back by so much since
    stamp = struct.pack("qq", *divmod(time.time_ns(), 10**9))
    now = time.perf_counter()
    arrived = clock.arrival([(socket.SOL_SOCKET, SO_TIMESTAMPNS, stamp)], now)
    clock._asking.close()
    assert arrived is not None
    assert now - 0.04 < arrived <= now
