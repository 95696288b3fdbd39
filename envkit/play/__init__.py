"""Playing by hand: keys, windows, pictures and terminals."""
