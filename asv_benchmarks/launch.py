"""Runs one command and prints what it took: `launch.py STDIN STDOUT COMMAND...`, run with -I -S to stay small.

A process begins with the peak memory of the one that forked it, so a large benchmark process cannot measure a small
command; this one can.
"""

import json
import os
import sys
import time


def main(stdin: str, stdout: str, command: list[str]) -> None:
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(stdin, os.O_RDONLY), 0)
        os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps([code, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
