"""The process of a long-running command: signals, logs, memory, open files, task dumps."""
