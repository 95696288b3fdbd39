"""What the adapters of ale-py are made of."""
