"""What bench_stream.py and bench_vllm.py share."""
