#include "tools/terminal.hpp"

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <string>

namespace plimsoll {
namespace {

/// Both ends of a pseudo terminal of 100 columns.
struct PseudoTerminal {
    PseudoTerminal() {
        winsize size = {.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
        ok = openpty(&master, &slave, nullptr, nullptr, &size) == 0;
    }
    ~PseudoTerminal() {
        close(master);
        close(slave);
    }
    int master = -1;
    int slave = -1;
    bool ok = false;
};

TEST(Terminal, KnowsATerminalFromAPipe) {
    int ends[2] = {};
    ASSERT_EQ(pipe(ends), 0);
    const Terminal of_pipe = inspect_terminal(ends[1], nullptr, "xterm");
    EXPECT_FALSE(of_pipe.is_terminal);
    EXPECT_FALSE(of_pipe.colour);
    EXPECT_EQ(of_pipe.columns, 80u);
    close(ends[0]);
    close(ends[1]);

    const PseudoTerminal pty;
    ASSERT_TRUE(pty.ok);
    const Terminal of_pty = inspect_terminal(pty.slave, nullptr, "xterm");
    EXPECT_TRUE(of_pty.is_terminal);
    EXPECT_TRUE(of_pty.colour);
    EXPECT_EQ(of_pty.columns, 100u);
}

TEST(Terminal, HasNoColourWhereTheUserOrTheTerminalWantsNone) {
    const PseudoTerminal pty;
    ASSERT_TRUE(pty.ok);
    EXPECT_FALSE(inspect_terminal(pty.slave, "1", "xterm").colour);
    EXPECT_TRUE(inspect_terminal(pty.slave, "", "xterm").colour);
    EXPECT_FALSE(inspect_terminal(pty.slave, nullptr, "dumb").colour);
    EXPECT_FALSE(inspect_terminal(pty.slave, nullptr, nullptr).colour);
}

TEST(Terminal, StylesTextOnlyWithColour) {
    EXPECT_EQ(styled("x", Style::red, {.colour = true}), "\x1b[31mx\x1b[0m");
    EXPECT_EQ(styled("x", Style::red, {.colour = false}), "x");
    EXPECT_EQ(styled("x", Style::plain, {.colour = true}), "x");
}

TEST(Terminal, CountsColumnsNotBytes) {
    EXPECT_EQ(display_columns("abc"), 3u);
    EXPECT_EQ(display_columns("\u00E8\u6F22"), 3u);
    EXPECT_EQ(display_columns("e\u0301"), 1u);
    EXPECT_EQ(display_columns("\U0001F642"), 2u);
    EXPECT_EQ(display_columns("a\xFF\xE6\xBC"), 3u);
}

}  // namespace
}  // namespace plimsoll
