"""What the gateway is told: a validated, immutable description of all that one serve runs."""

from modelops.config.settings import (
    AdmissionConfig,
    BatchingConfig,
    ConfigFile,
    GatewayConfig,
    LimitsConfig,
    ModelConfig,
    ModelEntry,
    Provider,
    ServerConfig,
    ServerEntry,
    is_loopback,
)

__all__ = [
    "AdmissionConfig",
    "BatchingConfig",
    "ConfigFile",
    "GatewayConfig",
    "LimitsConfig",
    "ModelConfig",
    "ModelEntry",
    "Provider",
    "ServerConfig",
    "ServerEntry",
    "is_loopback",
]
