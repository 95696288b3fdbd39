"""What the adapters of TF-Agents are made of."""
