#pragma once

namespace plimsoll {

/// While it lives, Ctrl+C (SIGINT) raises a flag in place of ending the process, and interrupts a
/// waiting read of the thread that made it. A second Ctrl+C before the flag was cleared ends the
/// process after all, so that nobody is locked in. One at a time.
class InterruptFlag {
public:
    InterruptFlag();
    ~InterruptFlag();
    InterruptFlag(const InterruptFlag&) = delete;
    InterruptFlag& operator=(const InterruptFlag&) = delete;

    [[nodiscard]] bool raised() const;
    void clear();
};

}  // namespace plimsoll
