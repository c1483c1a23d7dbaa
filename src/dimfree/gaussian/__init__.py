"""Expectations over Gaussian local fields."""
