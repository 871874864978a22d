"""Named cursors: positions of readers in a log, stored between runs."""
