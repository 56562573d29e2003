#include "tensors.hpp"

#include <cstdio>
#include <cstring>
#include <numeric>

namespace cft {

void check(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "the ccl backend takes tensors of the CPU, not of ", tensor.device());
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "the ccl backend takes dense tensors only; call .to_dense()");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), "the ccl backend takes contiguous tensors only; call .contiguous()");
}

void check_alike(const at::Tensor& tensor, const at::Tensor& other) {
  check(tensor);
  TORCH_CHECK_VALUE(tensor.scalar_type() == other.scalar_type(), "all tensors must be of one type, not ",
                    toString(tensor.scalar_type()), " and ", toString(other.scalar_type()));
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "expected one tensor, got ", tensors.size());
  check(tensors[0]);
  return tensors[0];
}

std::vector<size_t> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<size_t> bytes;
  for (const auto& tensor : tensors) {
    bytes.push_back(tensor.nbytes());
  }
  return bytes;
}

size_t total(const std::vector<size_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

Scratch joined(const std::vector<at::Tensor>& tensors) {
  Scratch bytes(total(bytes_of(tensors)));
  char* to = bytes.data();
  for (const auto& tensor : tensors) {
    std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += tensor.nbytes();
  }
  return bytes;
}

void spread(const Scratch& bytes, const std::vector<at::Tensor>& tensors) {
  const char* from = bytes.data();
  for (const auto& tensor : tensors) {
    std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
    from += tensor.nbytes();
  }
}

std::string describe(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) {
    return "nothing";
  }
  const double bytes = static_cast<double>(total(bytes_of(tensors)));
  char text[64];
  if (bytes < 1024 * 1024) {
    std::snprintf(text, sizeof text, "%.0f bytes", bytes);
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", bytes / 1024 / 1024);
  }
  return std::string(text) + " of " + toString(tensors[0].scalar_type());
}

}  // namespace cft
