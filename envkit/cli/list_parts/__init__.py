"""What `envkit list` is made of."""
