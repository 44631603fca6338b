// Runs a fuzz target without libFuzzer: over its seeds, then over mutations of them; or over files,
// such as an input that libFuzzer found.
//
//   gguf_smoke [--seed N] [--rounds N]     the bounded run that is among the tests
//   gguf_smoke FILE...                     these inputs alone
//   gguf_smoke --write FOLDER              the seeds as files, for libFuzzer to start from

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/mutation.hpp"

namespace plimsoll::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Any input is to be answered in this time; sanitizers and a busy machine take their share.
constexpr double kSecondsMax = 10;
constexpr std::size_t kSurvivorsMax = 256;

/// A file that always holds the latest input, so that a crash leaves the one that led to it. One
/// descriptor for all rounds: a file truncated and closed anew goes to the disk each time.
class LastInput {
public:
    explicit LastInput(std::string path)
        : path_(std::move(path)),
          descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
    ~LastInput() { ::close(descriptor_); }
    LastInput(const LastInput&) = delete;
    LastInput& operator=(const LastInput&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool keep(const std::string& input) const {
        const auto size = static_cast<off_t>(input.size());
        return ::pwrite(descriptor_, input.data(), input.size(), 0) == size &&
               ::ftruncate(descriptor_, size) == 0;
    }
    void drop() const { ::unlink(path_.c_str()); }

private:
    std::string path_;
    int descriptor_;
};

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int fail(const std::string& problem) {
    fmt::print(stderr, "{}\n", problem);
    return 1;
}

const std::string& any_of(const std::vector<std::string>& texts, std::mt19937_64& random) {
    return texts[random() % texts.size()];
}

/// Inputs that were spoiled and accepted all the same, to be spoiled further.
class Survivors {
public:
    explicit Survivors(std::size_t size_bytes_max) : size_bytes_max_(size_bytes_max) {}

    void add(const std::string& input, std::mt19937_64& random) {
        // Without a limit they grow round by round.
        if (input.size() > size_bytes_max_) return;
        if (inputs_.size() < kSurvivorsMax)
            inputs_.push_back(input);
        else
            inputs_[random() % kSurvivorsMax] = input;
    }
    [[nodiscard]] const std::vector<std::string>& inputs() const { return inputs_; }

private:
    std::size_t size_bytes_max_;
    std::vector<std::string> inputs_;
};

int run_mutations(std::uint64_t seed, std::uint64_t rounds, const LastInput& last_input) {
    fmt::print("seed {}, {} rounds\n", seed, rounds);
    const std::vector<std::string> seeds = seed_inputs();
    std::size_t seed_bytes_max = 0;
    for (const std::string& input : seeds) {
        if (!fuzz_one(input)) return fail("a seed was refused");
        seed_bytes_max = std::max(seed_bytes_max, input.size());
    }
    std::mt19937_64 random(seed);
    Survivors survivors(2 * seed_bytes_max);
    std::uint64_t accepted = 0;
    double slowest_seconds = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        // Half of the rounds start from a seed: survivors come to be of the kind that is easily
        // accepted.
        const bool fresh = survivors.inputs().empty() || random() % 2 == 0;
        const std::string input =
            mutated(any_of(fresh ? seeds : survivors.inputs(), random), seeds, random);
        if (!last_input.keep(input)) return fail(last_input.path() + ": cannot be written");
        const Clock::time_point start = Clock::now();
        const bool taken = fuzz_one(input);
        const std::chrono::duration<double> seconds = Clock::now() - start;
        slowest_seconds = std::max(slowest_seconds, seconds.count());
        if (slowest_seconds > kSecondsMax)
            return fail(fmt::format("round {} took {:.1f} s, see {}", round, slowest_seconds,
                                    last_input.path()));
        if (!taken) continue;
        ++accepted;
        survivors.add(input, random);
    }
    last_input.drop();
    fmt::print("{} accepted, {} refused, slowest {:.0f} ms\n", accepted, rounds - accepted,
               slowest_seconds * 1e3);
    if (accepted == 0 || accepted == rounds) return fail("the mutations reach one side only");
    return 0;
}

int write_seeds(const std::string& folder) {
    std::size_t index = 0;
    for (const std::string& input : seed_inputs())
        write_file(fmt::format("{}/seed-{}", folder, index++), input);
    return 0;
}

int run(const std::string& program, const std::vector<std::string>& arguments) {
    std::uint64_t seed = 1, rounds = 2000;
    std::size_t at = 0;
    for (; at + 1 < arguments.size() && arguments[at].starts_with("--"); at += 2) {
        const std::string& value = arguments[at + 1];
        if (arguments[at] == "--write") return write_seeds(value);
        if (arguments[at] == "--seed") seed = std::strtoull(value.c_str(), nullptr, 10);
        if (arguments[at] == "--rounds") rounds = std::strtoull(value.c_str(), nullptr, 10);
    }
    if (at == arguments.size())
        return run_mutations(seed, rounds, LastInput(program + ".last-input"));
    for (; at < arguments.size(); ++at)
        fmt::print("{}: {}\n", arguments[at],
                   fuzz_one(read_file(arguments[at])) ? "accepted" : "refused");
    return 0;
}

}  // namespace
}  // namespace plimsoll::test

int main(int count, char** arguments) {
    return plimsoll::test::run(arguments[0], {arguments + 1, arguments + count});
}
