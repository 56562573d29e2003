// What oneCCL would take the process along with.
#pragma once

namespace cft {

// oneCCL's worker throws when a connection breaks, which nobody catches: the process would end before the group could
// say which rank has died. From this call on the thread is kept instead, and groups fail by themselves; see
// State::broken. More than once does no harm.
void outlive_worker();

// When the process ends, oneCCL waits for its worker, and a worker that sends to a dead peer never ends. After this
// call the process ends without it. Python has finished by then: what is left out is the destruction of libraries.
// What is registered last runs first: to be called once something went wrong, when all of oneCCL has been loaded.
void end_without_oneccl();

}  // namespace cft
