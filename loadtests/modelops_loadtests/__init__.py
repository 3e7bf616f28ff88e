"""Load tests that judge themselves first: locust underneath, raw samples, gates, a report."""
