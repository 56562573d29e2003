#include "element.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

// One binary for all CPUs: the loader takes the widest instructions there are.
#define CFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

namespace cft {
namespace {

// `ivdep` below: where rows overlap they are the same row, which depends on nothing of other iterations.
//
// Small enough for the first-level cache, together with the rows that are added to it.
constexpr size_t kTile = 2048;

CFT_CLONES void add(float* total, const float* row, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    total[i] += row[i];
  }
}

CFT_CLONES void add_two(float* out, const float* a, const float* b, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
}

CFT_CLONES void widen(float* out, const uint16_t* in, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
  }
}

CFT_CLONES void add_bfloat16(float* total, const uint16_t* row, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    total[i] += std::bit_cast<float>(static_cast<uint32_t>(row[i]) << 16);
  }
}

CFT_CLONES void narrow(uint16_t* out, const float* in, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding up could turn a NaN into an infinity.
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    out[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
  }
}

template <typename T>
T combine(T a, T b, Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return static_cast<T>(a + b);
    case Reduction::kProduct:
      return static_cast<T>(a * b);
    case Reduction::kMin:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

// `Wide` is the type that is accumulated in.
template <typename T, typename Wide>
void generic(T* out, const void* const* rows, size_t count_rows, size_t count, Reduction reduction) {
  for (size_t i = 0; i < count; ++i) {
    Wide total = static_cast<Wide>(static_cast<const T*>(rows[0])[i]);
    for (size_t row = 1; row < count_rows; ++row) {
      total = combine<Wide>(total, static_cast<Wide>(static_cast<const T*>(rows[row])[i]), reduction);
    }
    out[i] = static_cast<T>(total);
  }
}

void sum_float32(float* out, const void* const* rows, size_t count_rows, size_t count) {
  const auto row = [&](size_t number) { return static_cast<const float*>(rows[number]); };
  if (count_rows == 1) {
    std::memmove(out, row(0), count * sizeof(float));
    return;
  }
  alignas(64) float total[kTile];
  for (size_t start = 0; start < count; start += kTile) {
    const size_t length = std::min(kTile, count - start);
    if (count_rows == 2) {
      add_two(out + start, row(0) + start, row(1) + start, length);
      continue;
    }
    add_two(total, row(0) + start, row(1) + start, length);
    for (size_t number = 2; number < count_rows; ++number) {
      add(total, row(number) + start, length);
    }
    std::memcpy(out + start, total, length * sizeof(float));
  }
}

void sum_bfloat16(uint16_t* out, const void* const* rows, size_t count_rows, size_t count) {
  alignas(64) float total[kTile];
  for (size_t start = 0; start < count; start += kTile) {
    const size_t length = std::min(kTile, count - start);
    widen(total, static_cast<const uint16_t*>(rows[0]) + start, length);
    for (size_t number = 1; number < count_rows; ++number) {
      add_bfloat16(total, static_cast<const uint16_t*>(rows[number]) + start, length);
    }
    narrow(out + start, total, length);
  }
}

}  // namespace

Element element_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Element::kFloat32;
    case at::kDouble:
      return Element::kFloat64;
    case at::kHalf:
      return Element::kFloat16;
    case at::kBFloat16:
      return Element::kBFloat16;
    case at::kChar:
      return Element::kInt8;
    case at::kByte:
    case at::kBool:
      return Element::kUInt8;
    case at::kShort:
      return Element::kInt16;
    case at::kInt:
      return Element::kInt32;
    case at::kLong:
      return Element::kInt64;
    default:
      TORCH_CHECK_TYPE(false, "the ccl backend does not reduce tensors of type ", toString(tensor.scalar_type()));
  }
}

Reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  // A bool is stored as one byte; true + true must stay true.
  const bool truth = tensor.scalar_type() == at::kBool;
  switch (op) {
    case c10d::ReduceOp::AVG:
      TORCH_CHECK_TYPE(tensor.is_floating_point(), "AVG needs a floating-point tensor, not one of type ",
                       toString(tensor.scalar_type()));
      return Reduction::kSum;
    case c10d::ReduceOp::SUM:
      return truth ? Reduction::kMax : Reduction::kSum;
    case c10d::ReduceOp::PRODUCT:
      return truth ? Reduction::kMin : Reduction::kProduct;
    case c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case c10d::ReduceOp::MAX:
      return Reduction::kMax;
    default:
      TORCH_CHECK(false, "the ccl backend reduces by SUM, AVG, PRODUCT, MIN and MAX only");
  }
}

size_t size_of(Element element) {
  switch (element) {
    case Element::kFloat64:
    case Element::kInt64:
      return 8;
    case Element::kFloat32:
    case Element::kInt32:
      return 4;
    case Element::kInt8:
    case Element::kUInt8:
      return 1;
    default:
      return 2;
  }
}

void reduce_rows(void* out, const void* const* rows, size_t n, size_t count, Element element, Reduction reduction) {
  switch (element) {
    case Element::kFloat32:
      return reduction == Reduction::kSum ? sum_float32(static_cast<float*>(out), rows, n, count)
                                          : generic<float, float>(static_cast<float*>(out), rows, n, count, reduction);
    case Element::kBFloat16:
      return reduction == Reduction::kSum
                 ? sum_bfloat16(static_cast<uint16_t*>(out), rows, n, count)
                 : generic<c10::BFloat16, float>(static_cast<c10::BFloat16*>(out), rows, n, count, reduction);
    case Element::kFloat16:
      return generic<c10::Half, float>(static_cast<c10::Half*>(out), rows, n, count, reduction);
    case Element::kFloat64:
      return generic<double, double>(static_cast<double*>(out), rows, n, count, reduction);
    case Element::kInt8:
      return generic<int8_t, int8_t>(static_cast<int8_t*>(out), rows, n, count, reduction);
    case Element::kUInt8:
      return generic<uint8_t, uint8_t>(static_cast<uint8_t*>(out), rows, n, count, reduction);
    case Element::kInt16:
      return generic<int16_t, int16_t>(static_cast<int16_t*>(out), rows, n, count, reduction);
    case Element::kInt32:
      return generic<int32_t, int32_t>(static_cast<int32_t*>(out), rows, n, count, reduction);
    case Element::kInt64:
      return generic<int64_t, int64_t>(static_cast<int64_t*>(out), rows, n, count, reduction);
  }
}

namespace {

template <typename T>
void divide_as(void* data, size_t count, size_t divisor) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* const values = static_cast<T*>(data);
  const Wide by = static_cast<Wide>(divisor);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<Wide>(values[i]) / by);
  }
}

}  // namespace

void divide(void* data, size_t count, Element element, size_t divisor) {
  switch (element) {
    case Element::kFloat32:
      return divide_as<float>(data, count, divisor);
    case Element::kFloat64:
      return divide_as<double>(data, count, divisor);
    case Element::kFloat16:
      return divide_as<c10::Half>(data, count, divisor);
    case Element::kBFloat16:
      return divide_as<c10::BFloat16>(data, count, divisor);
    default:
      return;
  }
}

void to_bfloat16(const float* in, void* out, size_t count) {
  narrow(static_cast<uint16_t*>(out), in, count);
}

void from_bfloat16(const void* in, float* out, size_t count) {
  widen(out, static_cast<const uint16_t*>(in), count);
}

}  // namespace cft
