#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cli/temporary_folder.hpp"

extern char** environ;

namespace plimsoll::test {

/// What a finished program left behind.
struct Outcome {
    int status = 0;  // exit status; 128 + signal where one ended it
    std::string out;
    std::string err;
};

/// Runs the built plimsoll and waits. No stream of it is a terminal.
inline Outcome run_plimsoll(std::vector<std::string> arguments, const std::string& input = "") {
    const TemporaryFolder folder;
    const std::string in = folder.write("in", input), out = folder.file("out"),
                      err = folder.file("err");
    arguments.insert(arguments.begin(), PLIMSOLL_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);

    posix_spawn_file_actions_t streams;
    posix_spawn_file_actions_init(&streams);
    constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&streams, STDOUT_FILENO, out.c_str(), kWrite, 0600);
    posix_spawn_file_actions_addopen(&streams, STDERR_FILENO, err.c_str(), kWrite, 0600);
    pid_t child = 0;
    const int failed = posix_spawn(&child, argv[0], &streams, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&streams);
    if (failed != 0) throw std::runtime_error(std::string("cannot start ") + argv[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = read_file(out),
            .err = read_file(err)};
}

}  // namespace plimsoll::test
