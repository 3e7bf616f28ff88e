"""Engines: one module each, imported only where the registry resolves it."""
