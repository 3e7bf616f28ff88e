"""The HTTP front: protocols, limits, health, metrics. Knows no engine and no runtime."""
