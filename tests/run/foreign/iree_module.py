"""Compile a matrix product and a softmax by IREE for a GPU, run them by its HIP driver, and compare with NumPy."""

import sys

import numpy as np
from iree import compiler, runtime

SOURCE = """
func.func @layer(%a: tensor<32x16xf32>, %b: tensor<16x24xf32>) -> tensor<32x24xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<32x24xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x24xf32>) -> tensor<32x24xf32>
  %product = linalg.matmul ins(%a, %b : tensor<32x16xf32>, tensor<16x24xf32>)
    outs(%start : tensor<32x24xf32>) -> tensor<32x24xf32>
  %result = linalg.softmax dimension(1) ins(%product : tensor<32x24xf32>)
    outs(%empty : tensor<32x24xf32>) -> tensor<32x24xf32>
  return %result : tensor<32x24xf32>
}
"""
options = ["--iree-hal-target-device=hip", f"--iree-rocm-target={sys.argv[1]}"]
module = runtime.load_vm_flatbuffer(compiler.compile_str(SOURCE, extra_args=options), driver="hip")
a, b = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in ((32, 16), (16, 24)))
powers = np.exp(a @ b)
result = module.layer(a, b).to_host()
np.testing.assert_allclose(result, powers / powers.sum(axis=1, keepdims=True), atol=1e-5)
print("equal to NumPy's")
