// oneCCL's key-value exchange over the c10d store: no second port to open, no second address to agree on.
#pragma once

#include <oneapi/ccl.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace cft {

class Kvs : public ccl::kvs_interface {
 public:
  Kvs(const c10::intrusive_ptr<c10d::Store>& store, std::string topic)
      : store_(store), topic_(std::move(topic)), id_(next_id()) {}

  // The creation that asks has been given up; its thread cannot be ended, but it need not burn a core.
  void abandon() { abandoned_ = true; }

  // Empty at once where there is no such key: oneCCL asks again.
  std::vector<char> get(const ccl::string_class& key) override {
    if (abandoned_) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    const std::string full = topic_ + "/" + key.c_str();
    try {
      if (store_->check({full})) {
        const auto value = store_->get(full);
        return {value.begin(), value.end()};
      }
    } catch (const std::exception&) {
      // oneCCL also calls from destructors, where an exception would end the process. It is left asking until the
      // time is up that it was given.
    }
    return {};
  }

  void set(const ccl::string_class& key, const std::vector<char>& value) override {
    try {
      store_->set(topic_ + "/" + key.c_str(), std::vector<uint8_t>(value.begin(), value.end()));
    } catch (const std::exception&) {
      // As above.
    }
  }

  int get_id() override { return id_; }

 private:
  static int next_id() {
    static std::atomic<int> last{0};
    return ++last;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string topic_;
  const int id_;
  std::atomic<bool> abandoned_{false};
};

}  // namespace cft
