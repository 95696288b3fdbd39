"""What `envkit check` is made of."""
