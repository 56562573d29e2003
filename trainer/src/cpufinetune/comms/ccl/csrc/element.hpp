// Element types and reductions, and the arithmetic on rows of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>

namespace cft {

enum class Element { kFloat32, kFloat64, kFloat16, kBFloat16, kInt8, kUInt8, kInt16, kInt32, kInt64 };
enum class Reduction { kSum, kProduct, kMin, kMax };

// Throw a TypeError that names what is there instead.
Element element_of(const at::Tensor& tensor);
Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor);
size_t size_of(Element element);

// out[i] = row_0[i] + row_1[i] + ... in this order. Half-precision types are accumulated in float32 and rounded to
// nearest-even once. `out` may be one of the rows.
void reduce_rows(void* out, const void* const* rows, size_t count_rows, size_t count, Element element,
                 Reduction reduction);

// data[i] /= divisor, of floating-point types.
void divide(void* data, size_t count, Element element, size_t divisor);

// Round to nearest-even; NaN stays NaN.
void to_bfloat16(const float* in, void* out, size_t count);
void from_bfloat16(const void* in, float* out, size_t count);

}  // namespace cft
