"""Where a fit is computed: CPU, one NVIDIA GPU, or a Dask cluster."""
