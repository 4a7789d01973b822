"""Generated parts of pages, and tests of the other parts.

`python -m tests.documents` (`make docs`) writes what is made: the folders in DESIGN.md, the map, the reference, the
checkers, the rules and the invariants. The tests hold that it is fresh, that every link leads somewhere, that every
file that a page names is there, and that every label in code and pages stands for something.
"""
