"""An OpenAI server with a scripted clock, which stamps what it really wrote when; no engine."""

from modelops_loadtests.mock.process import MockServer
from modelops_loadtests.mock.script import Script

__all__ = ["MockServer", "Script"]
