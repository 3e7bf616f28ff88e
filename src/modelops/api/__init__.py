"""What modelops can do, one function for each command."""
