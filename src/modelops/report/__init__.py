"""What a person reads: self-contained HTML pages, and the same at the terminal."""
