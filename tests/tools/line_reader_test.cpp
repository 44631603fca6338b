#include "tools/line_reader.hpp"

#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace plimsoll {
namespace {

using Kind = LineInput::Kind;

TEST(InterruptFlag, IsRaisedBySigintAndCleared) {
    InterruptFlag flag;
    EXPECT_FALSE(flag.raised());
    raise(SIGINT);
    EXPECT_TRUE(flag.raised());
    flag.clear();
    EXPECT_FALSE(flag.raised());
}

TEST(InterruptFlag, IsRaisedByASignalToAnotherThread) {
    InterruptFlag flag;
    std::thread([] { raise(SIGINT); }).join();
    // The signal is sent on to this thread, which takes it a moment later.
    for (int i = 0; i < 1000 && !flag.raised(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(flag.raised());
}

TEST(InterruptFlag, LetsTheSecondSigintEndTheProcess) {
    EXPECT_EXIT(
        {
            const InterruptFlag flag;
            raise(SIGINT);
            raise(SIGINT);
        },
        testing::KilledBySignal(SIGINT), "");
}

TEST(LineReader, ReadsPlainLinesFromAFile) {
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    std::fputs("one\n\nlast", file);
    std::rewind(file);
    InterruptFlag flag;
    LineReader reader(file, stderr, flag);
    EXPECT_EQ(reader.read("> ").text, "one");
    EXPECT_EQ(reader.read("> ").text, "");
    EXPECT_EQ(reader.read("> ").text, "last");
    EXPECT_EQ(reader.read("> ").kind, Kind::end);
    std::fclose(file);
}

/// A reader at one end of a pseudo terminal and a person at the other.
class TypedLines : public testing::Test {
protected:
    void SetUp() override {
        setenv("TERM", "xterm", 1);
        ASSERT_EQ(openpty(&master_, &slave_, nullptr, nullptr, nullptr), 0);
        file_ = fdopen(slave_, "r+");
        ASSERT_NE(file_, nullptr);
        // What the editor echoes must be taken away, or the terminal's buffer fills.
        drain_ = std::thread([this] {
            char buffer[512];
            while (::read(master_, buffer, sizeof buffer) > 0) {
            }
        });
    }
    void TearDown() override {
        if (typist_.joinable()) typist_.join();
        std::fclose(file_);
        drain_.join();
        close(master_);
    }
    /// Types once the reader edits. Before, the terminal itself takes Ctrl+D for an end of file,
    /// which is gone when the mode changes, and the reader would wait for ever.
    void type(const std::string& text) {
        if (typist_.joinable()) typist_.join();
        typist_ = std::thread([this, text] {
            termios mode{};
            constexpr int kWaitsMax = 10000;
            for (int waits = 0; waits < kWaitsMax; ++waits) {
                if (tcgetattr(master_, &mode) != 0 || (mode.c_lflag & ICANON) == 0) break;
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            EXPECT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        });
    }

    int master_ = -1;
    int slave_ = -1;
    std::FILE* file_ = nullptr;
    std::thread drain_;
    std::thread typist_;
    InterruptFlag flag_;
};

TEST_F(TypedLines, AreEditedAndRemembered) {
    LineReader reader(file_, file_, flag_);
    type("helo\x7Flo\n");
    EXPECT_EQ(reader.read("> ").text, "hello");
    type("\x10\n");  // Ctrl+P: the line before
    EXPECT_EQ(reader.read("> ").text, "hello");
}

TEST_F(TypedLines, PastedTogetherAreOneText) {
    LineReader reader(file_, file_, flag_);
    type("first\n  second\nthird\n");
    EXPECT_EQ(reader.read("> ").text, "first\n  second\nthird");
}

TEST_F(TypedLines, EndWithControlD) {
    LineReader reader(file_, file_, flag_);
    type("\x04");
    EXPECT_EQ(reader.read("> ").kind, Kind::end);
}

TEST_F(TypedLines, AreDroppedAtAnInterrupt) {
    LineReader reader(file_, file_, flag_);
    type("half a li");
    std::thread interrupt([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        raise(SIGINT);
    });
    EXPECT_EQ(reader.read("> ").kind, Kind::interrupted);
    interrupt.join();
    EXPECT_FALSE(flag_.raised());
    type("next\n");
    EXPECT_EQ(reader.read("> ").text, "next");
}

}  // namespace
}  // namespace plimsoll
