"""What the adapters of PettingZoo are made of."""
