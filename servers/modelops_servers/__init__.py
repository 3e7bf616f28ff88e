"""Serving: the gateway, the models it holds, and one module per engine."""
