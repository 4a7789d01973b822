"""Help for the tests of other projects."""
