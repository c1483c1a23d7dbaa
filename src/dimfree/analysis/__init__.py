"""What it means: exit times, learning rates, landscapes, plateaus and solutions."""
