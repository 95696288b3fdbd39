"""What `VizDoomWrapper` is made of: games, buttons and what a state shows."""
