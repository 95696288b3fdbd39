"""What the adapter of PySC2 is made of."""
