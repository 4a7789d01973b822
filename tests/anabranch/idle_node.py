"""Something that is started as a node is, says that it is ready, and waits to be killed."""

import sys

sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdout.close()
while True:
    __import__("signal").pause()
