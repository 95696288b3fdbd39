"""What the adapters of Gymnasium's vector environments are made of."""
