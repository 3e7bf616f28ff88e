"""What bench_gateway.py, bench_tensors.py and soak.py share; light, as peers' servers import it."""
