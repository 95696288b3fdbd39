"""What `envkit replay` is made of when it shows pictures."""
