"""The token path: OpenAI's routes over a text engine that speaks HTTP, byte for byte."""
