"""Importing what the user names by ``package.module:attribute``."""

from __future__ import annotations

import importlib
from typing import Any

from modelops.errors import InputError, UsageError


def imported(target: str, flag: str, form: str) -> Any:
    """Return the callable ``target``, from the working folder or the environment.

    Raises:
        UsageError: there is no such module or attribute.
        InputError: the module raises.
    """
    module_name, separator, attribute = target.partition(":")
    if not separator or not module_name or not attribute:
        raise UsageError(f"{flag} {target!r} is not of the form {form}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{flag} {target!r}: no module named {error.name!r}",
            hint="the working folder and the environment are searched",
        ) from error
    except Exception as error:
        raise InputError(
            f"importing {module_name} raises {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(f"{module_name} has no callable {attribute!r}")
    return found
