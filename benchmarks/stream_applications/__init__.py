"""The same applications for this package, Faust, Quix Streams and Kafka Streams, and how to run and check them.

Each program takes the words KIND SERVERS APPLICATION STATE_DIR GUARANTEE COMMIT_MS STANDBYS INPUT TABLE OUTPUT. Keys
and values are text, GUARANTEE is at_least_once or exactly_once. The output of each KIND is:

    counts    how many records its key has had so far
    windows   the window's first millisecond, and how many records its key has had in that minute
    join      the record's value, and the row of its key in the topic TABLE
"""
