"""What can be asked, by path."""
