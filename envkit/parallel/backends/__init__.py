"""The carriers of workers: each starts them, rings them and tells how they ended."""
