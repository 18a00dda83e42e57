"""Sources of candidates: for each kind with buffers, the kernels that search the window for its best messages.

A source is a NamedTuple of the arrays that its search reads. It has at least the fields of `SourceArrays`. Its
kernels are `SourceKernels`. The kernels of buffers take both as arguments and are compiled once per source, so they
contain no branch on the kind. Each module has the entry points `append_messages`, `begin` and `publish` for its
source. They pass the kernels on as arguments inside compiled code: a kernel that is passed from Python costs 20
microseconds per call, since Numba determines its type each time.
"""
