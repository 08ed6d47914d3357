"""What one job amounts to: who chose differently, what tuning saves, how near the roof it is."""
