"""What `envkit top` is made of."""
