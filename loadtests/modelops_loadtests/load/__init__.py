"""Load shapes: when requests are due, in which stages, and with which lengths."""
