"""The fault harness: what may break, on purpose, and the tests that nothing is lost by it.

points     crash points by name: this process ends by SIGKILL at one of them
kills      runs in forked processes, killed at crash points or at random moments, resumed and compared
proxy      a TCP proxy on the loopback address with latency, resets, partitions and a limit of bandwidth
killers    the processes of a test by number, and their end
damage     files that are truncated, flipped, zeroed, emptied, swapped or removed
disk       calls of the operating system that fail: no space, read-only, I/O error
figures    what was measured, in one JSON file

`make faults` runs the long tests here, those marked `faults`; the short ones run with all others.
"""
