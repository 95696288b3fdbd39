"""What `envkit describe` is made of."""
