"""What the gateway is told: a validated, immutable description of all that one serve runs."""

from modelops.config.engine_options import (
    EngineOptions,
    KvCacheDtype,
    NgramSpeculation,
    OpenAIOptions,
    VllmOptions,
)
from modelops.config.settings import (
    ELSEWHERE,
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
    TimeoutsConfig,
    is_loopback,
)

__all__ = [
    "ELSEWHERE",
    "AdmissionConfig",
    "BatchingConfig",
    "ConfigFile",
    "EngineOptions",
    "GatewayConfig",
    "KvCacheDtype",
    "LimitsConfig",
    "ModelConfig",
    "ModelEntry",
    "NgramSpeculation",
    "OpenAIOptions",
    "Provider",
    "ServerConfig",
    "ServerEntry",
    "TimeoutsConfig",
    "VllmOptions",
    "is_loopback",
]
