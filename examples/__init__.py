"""Small applications to read, run and copy."""
