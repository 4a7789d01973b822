"""The guided tour: six stories that drive a live cluster step by step, for a page or a terminal."""
