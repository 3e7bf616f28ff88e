"""Engine environments: what an engine is installed into, so that its pins are nobody else's.

``modelops`` itself never imports what lies in one; it starts the interpreter that is there.
"""

from modelops.environments.finding import (
    EngineEnvironment,
    EngineStatus,
    engine_statuses,
    find_environment,
)
from modelops.environments.installing import Installed, install_engine
from modelops.environments.place import FOLDER_VARIABLE, Place, environments_folder
from modelops.environments.removing import Removed, remove_engine

__all__ = [
    "FOLDER_VARIABLE",
    "EngineEnvironment",
    "EngineStatus",
    "Installed",
    "Place",
    "Removed",
    "engine_statuses",
    "environments_folder",
    "find_environment",
    "install_engine",
    "remove_engine",
]
