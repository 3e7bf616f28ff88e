"""The engine host: one process that holds one replica of one model's engine."""
