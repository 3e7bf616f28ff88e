"""The contenders' own servers, each run as a process: ``python -m gateway.servers.NAME``."""
