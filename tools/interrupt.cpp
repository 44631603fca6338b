#include "tools/interrupt.hpp"

#include <pthread.h>
#include <signal.h>

#include "planner/check.hpp"

namespace plimsoll {
namespace {

// Not members, since a signal handler can reach nothing else.
volatile sig_atomic_t interrupted = 0;
bool handler_installed = false;
pthread_t owner;
struct sigaction previous_action;

void on_interrupt(int signal_number) {
    // The kernel picks any thread, but only the owner's read is to be interrupted.
    if (pthread_equal(pthread_self(), owner) == 0) {
        pthread_kill(owner, signal_number);
        return;
    }
    if (interrupted != 0) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    interrupted = 1;
}

}  // namespace

InterruptFlag::InterruptFlag() {
    PLIMSOLL_CHECK(!handler_installed, "two interrupt flags at a time");
    handler_installed = true;
    owner = pthread_self();
    interrupted = 0;
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);  // no SA_RESTART: a read at the prompt must return
    PLIMSOLL_CHECK(sigaction(SIGINT, &action, &previous_action) == 0, "SIGINT");
}

InterruptFlag::~InterruptFlag() {
    sigaction(SIGINT, &previous_action, nullptr);
    handler_installed = false;
}

bool InterruptFlag::raised() const { return interrupted != 0; }

void InterruptFlag::clear() { interrupted = 0; }

}  // namespace plimsoll
