"""Load adjustment: a few cells move from the busiest shard to the idlest (PS2Stream, section V-A)."""
