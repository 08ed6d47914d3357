"""What one job amounts to: who chose differently, and what tuning saves."""
