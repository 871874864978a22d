"""What every compiled module needs of Cython: function objects, keyword arguments, imports. Made by Cython; no names."""
