"""Every error that modelops raises on purpose, in one tree.

ModelopsError                      exit 1
├── UsageError                     exit 2   the command or the call is off
├── InputError                     exit 3   what was given is bad
│   ├── UnsafeInputError           exit 3   … or would run code, or reach outside
│   ├── CheckpointError            exit 3   … or does not fit the model
│   ├── ExportError                exit 3   … or cannot be expressed in the target
│   └── RequestError               exit 3   an inference request that cannot be right
│       └── ModelNotFoundError     exit 3
├── VerificationError              exit 4
│   ├── ParityError                exit 4   the artifact does not compute what eager does
│   └── IntegrityError             exit 4   the artifact's files are not those published
├── MissingEnvironmentError        exit 5   an engine, extra or accelerator is missing
├── GateError                      exit 6   a measured gate did not hold
├── MeasurementError               exit 7   nothing can be said from this measurement
└── EngineError                    exit 1   an engine failed at run time
    ├── NotReadyError
    ├── OverloadedError
    └── DeadlineError

HTTP statuses are none of these errors' business: the gateway maps them in one module.
"""

from typing import ClassVar


class ModelopsError(Exception):
    """Base of all; ``message`` says what was wrong and where, ``hint`` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ModelopsError):
    """The command or call cannot be meant as given."""

    exit_code = 2


class InputError(ModelopsError):
    """A checkpoint, file, recipe or request is bad."""

    exit_code = 3


class UnsafeInputError(InputError):
    """The input would run code or reach outside its folder; nothing of it was executed."""


class CheckpointError(InputError):
    """A checkpoint is damaged or does not fit the model."""


class ExportError(InputError):
    """The model cannot be expressed in the target format."""


class RequestError(InputError):
    """An inference request does not fit the model's signature."""


class ModelNotFoundError(RequestError):
    """No model, or no such version of it, is served under this name."""


class VerificationError(ModelopsError):
    """A check that must hold before anything is published or loaded did not."""

    exit_code = 4


class ParityError(VerificationError):
    """The artifact's outputs differ from eager PyTorch's beyond the tolerance."""


class IntegrityError(VerificationError):
    """A file of an artifact is altered, missing, extra, linked or renamed."""


class MissingEnvironmentError(ModelopsError):
    """Something to run on is missing; ``hint`` is the command that mends it."""

    exit_code = 5


class GateError(ModelopsError):
    """A gate, such as an SLO, did not hold."""

    exit_code = 6


class MeasurementError(ModelopsError):
    """The measurement is invalid or inconclusive; no figure of it may be believed."""

    exit_code = 7


class EngineError(ModelopsError):
    """An engine failed while it ran; the native message is in ``message``."""


class NotReadyError(EngineError):
    """The model is loading, draining, stuck or stopped."""


class OverloadedError(EngineError):
    """The queue is full; the caller should come back later."""


class DeadlineError(EngineError):
    """The request's deadline passed before its answer was there."""
