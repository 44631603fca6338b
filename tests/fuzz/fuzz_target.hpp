#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::test {

/// Gives one input, of any bytes, to the reader that a program is about, and to whatever takes its
/// result. Returns whether it was accepted; a refusal is as good. Stops the process at what must
/// never be: a crash, or a result that breaks its reader's promises.
bool fuzz_one(std::string_view input);

/// Valid inputs to start from.
std::vector<std::string> seed_inputs();

/// Stops the process unless `message` is one line of printable text, not too long, that begins with
/// `start`: what a user is to see of a refusal.
void check_message(std::string_view message, std::string_view start);

}  // namespace plimsoll::test
