"""The pool: machines that take jobs from an existing engine.  We write no scheduler; Dask or Ray places the jobs."""
