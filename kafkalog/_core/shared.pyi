"""Parts of Cython that every compiled module uses: function objects, keyword arguments, imports. No names."""
