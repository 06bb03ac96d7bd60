"""Spark's shell around the core. Only here are Spark and Arrow imported."""
