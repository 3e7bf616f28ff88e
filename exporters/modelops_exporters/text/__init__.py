"""Text artifacts: a verified Hugging Face folder, from a folder, a hub id or a GGUF file."""
