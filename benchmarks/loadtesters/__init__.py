"""What bench_loadtest.py sets side by side: load testers reading the same mock."""
