"""What gives jobs to machines: scheduler and worker, on Dask."""
