"""The guided tour: six stories that drive a live cluster, told step by step to a page or a terminal."""
