"""The CUDA backend: Triton kernels on one NVIDIA GPU. It requires the extra ``gpu``.

Only ``backend`` and ``memory_estimate`` can be imported without torch.
"""
