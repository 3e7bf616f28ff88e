"""Exporters: from a checkpoint to a proven artifact, one module for each target."""
