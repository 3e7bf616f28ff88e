"""The command line: commands parse, call one function of ``modelops.api``, and print."""
