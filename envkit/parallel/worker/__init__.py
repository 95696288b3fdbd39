"""The worker's side: what runs where the environments live."""
