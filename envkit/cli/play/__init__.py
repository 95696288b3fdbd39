"""What `envkit play` is made of; `record` and `replay` use its pictures."""
