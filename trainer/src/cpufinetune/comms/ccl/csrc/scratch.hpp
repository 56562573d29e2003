// Memory for an operation of oneCCL.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>

namespace cft {

// Left behind, not freed, if its scope ends by an exception: oneCCL cannot be interrupted, and may still read or write.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : size_(bytes), data_(new char[bytes]) {}
  Scratch(Scratch&&) = default;
  ~Scratch() {
    if (std::uncaught_exceptions() > exceptions_) {
      data_.release();
    }
  }

  char* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  std::unique_ptr<char[]> data_;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace cft
