"""How tensors travel between a front and an engine host: frames, and memory that both map."""
