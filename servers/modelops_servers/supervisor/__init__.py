"""The process that owns the others: it starts them, watches them, and outlives none of them."""
