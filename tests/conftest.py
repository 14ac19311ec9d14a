"""Read by pytest before every test."""
import signal

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has tests ignore it, and programs after them
