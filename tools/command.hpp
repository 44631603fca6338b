#pragma once

#include <functional>

#include "planner/result.hpp"

namespace CLI {
class App;
}

namespace plimsoll {

/// What a command does once its arguments are parsed. An error becomes one line and the exit
/// status.
using Action = std::function<Status()>;

/// One row of the table in main: a command is added by adding a row.
struct Command {
    const char* name;
    const char* help;
    /// Declares arguments and sets the action; what it needs to remember lives in the action.
    void (*add)(CLI::App& command, Action& action);
};

}  // namespace plimsoll
