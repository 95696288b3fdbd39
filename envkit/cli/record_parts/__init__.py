"""What `envkit record` is made of."""
