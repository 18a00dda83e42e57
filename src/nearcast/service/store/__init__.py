"""Everything that a service keeps on disk."""
