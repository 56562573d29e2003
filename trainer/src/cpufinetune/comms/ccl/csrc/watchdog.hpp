// oneCCL never notices a dead peer: each rank shows signs of life on the board, and looks at the others' when an
// operation takes long.
#pragma once

#include <condition_variable>
#include <memory>
#include <thread>

#include "board.hpp"
#include "state.hpp"

namespace cft {

class Watchdog {
 public:
  Watchdog(std::shared_ptr<State> state, std::unique_ptr<Board> board);
  ~Watchdog();

  // End the watch; says whether the store has answered to the last.
  bool stop();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace cft
