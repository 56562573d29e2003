// What is asked of tensors before anything is sent, and bytes of several as one.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "scratch.hpp"

namespace cft {

// Throws a ValueError that says what is wrong with it.
void check(const at::Tensor& tensor);
void check_alike(const at::Tensor& tensor, const at::Tensor& other);
const at::Tensor& only(const std::vector<at::Tensor>& tensors);

inline size_t bytes_of(const at::Tensor& tensor) {
  return tensor.nbytes();
}
std::vector<size_t> bytes_of(const std::vector<at::Tensor>& tensors);
size_t total(const std::vector<size_t>& bytes);

// All bytes in the order of the list, and back.
Scratch joined(const std::vector<at::Tensor>& tensors);
void spread(const Scratch& bytes, const std::vector<at::Tensor>& tensors);

// Such as `25.0 MiB of Float`.
std::string describe(const std::vector<at::Tensor>& tensors);

}  // namespace cft
