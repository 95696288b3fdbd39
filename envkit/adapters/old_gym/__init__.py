"""What the adapter of the old Gym is made of."""
