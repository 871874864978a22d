"""Single-point changes of the sources, each tried against the tests that reach it: `make mutants`.

mutmut and cosmic-ray do not fit. Both know Python alone, not the compiled modules. mutmut calls every function through
a trampoline of its own, which shifts the frames and names that tests look at, and chooses tests by one run of the whole
suite. cosmic-ray edits the working tree and runs one command for every change. Here a change is one place of one line
in a copy of the tree, tried with the tests that ran the line.
"""
