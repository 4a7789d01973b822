"""A process that starts like a node, prints its ready line, and waits to be killed."""

import sys

sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdout.close()
while True:
    __import__("signal").pause()
