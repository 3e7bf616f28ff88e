"""Beside an engine that is a server of its own: starts it, watches it, says how it is."""
