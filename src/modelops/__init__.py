"""Take a trained PyTorch checkpoint to production: export, serve and load-test it."""

__version__ = "0.1.0"

__all__ = ["__version__"]
