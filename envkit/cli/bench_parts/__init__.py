"""What `envkit bench` is made of."""
