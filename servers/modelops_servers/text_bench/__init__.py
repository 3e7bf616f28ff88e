"""A language model's engine measured with one KV cache type after the other."""
