#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tidy/rules.hpp"

namespace plimsoll::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"planner", "kernels", "offload", "runtime", "tools", "tests"};
constexpr const char* kExtensions[] = {".cpp", ".hpp", ".cu", ".cuh"};

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// Every source file, as a path from the source root.
std::vector<fs::path> sources() {
    std::vector<fs::path> paths;
    const fs::path root = PLIMSOLL_SOURCE_ROOT;
    for (const char* folder : kFolders)
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
            if (std::find(std::begin(kExtensions), std::end(kExtensions),
                          entry.path().extension()) != std::end(kExtensions))
                paths.push_back(fs::relative(entry.path(), root));
    std::sort(paths.begin(), paths.end());
    return paths;
}

TEST(Tidy, EverySourceFileKeepsTheRules) {
    const std::vector<fs::path> paths = sources();
    ASSERT_GT(paths.size(), 100u) << "the source tree was not found at " PLIMSOLL_SOURCE_ROOT;
    for (const fs::path& path : paths)
        for (const Finding& finding :
             check_source(path.string(), read_file(PLIMSOLL_SOURCE_ROOT / path)))
            ADD_FAILURE() << describe(finding);
}

TEST(Tidy, EverySourceFileIsBuilt) {
    for (const fs::path& path : sources()) {
        if (path.extension() != ".cpp" && path.extension() != ".cu") continue;
        // A folder may list the files of a folder below it.
        bool listed = false;
        for (fs::path folder = path.parent_path(); !folder.empty() && !listed;
             folder = folder.parent_path()) {
            const std::string build = read_file(PLIMSOLL_SOURCE_ROOT / folder / "meson.build");
            listed =
                build.find("'" + fs::relative(path, folder).string() + "'") != std::string::npos;
        }
        EXPECT_TRUE(listed) << path << " is in no meson.build: list it or remove it";
    }
}

/// Faults that must be found: a rule that finds nothing here has stopped working.
struct Canary {
    const char* path;
    const char* text;
    std::uint32_t line;
    const char* message;  // a part of it
};
const Canary kCanaries[] = {
    {"planner/a.cpp", "#include <vector>\n#include <thread>\n", 2, "<thread>"},
    {"planner/a.cpp", "#include <cuda_runtime.h>\n", 1, "<cuda_runtime.h>"},
    {"planner/a.cpp", "#include \"runtime/arena.hpp\"\n", 1, "runtime/arena.hpp"},
    {"kernels/cpu/a.cpp", "#include \"planner/plan.hpp\"\n", 1, "planner/plan.hpp"},
    {"kernels/cpu/a.cpp", "#include <cuda_runtime.h>\n", 1, "<cuda_runtime.h>"},
    {"kernels/cpu/a.cpp", "#include <fstream>\n", 1, "<fstream>"},
    {"offload/a.cpp", "#  include \"planner/result.hpp\"\n", 1, "planner/result.hpp"},
    {"runtime/a.cpp", "#include \"tools/terminal.hpp\"\n", 1, "tools/terminal.hpp"},
    {"runtime/a.cpp", "#include <CLI/CLI.hpp>\n", 1, "<CLI/CLI.hpp>"},
    {"tools/a.cpp", "#include \"fit.hpp\"\n", 1, "without its folder"},
    {"kernels/cuda/a.cu", "int f() {\n    return cudaMalloc(&p, 1);\n}\n", 2, "arena"},
    {"kernels/cuda/a.cu", "int x = cudaMallocAsync (&p, 1, s);\n", 1, "arena"},
    {"runtime/a.cpp", "int x = cudaDeviceSynchronize();\n", 1, "event"},
    {"runtime/a.cpp", "const char* x = std::getenv(\"HOME\");\n", 1, "tools/"},
    {"planner/a.cpp", "void f() { assert(x); }\n", 1, "PLIMSOLL_CHECK"},
    {"runtime/a.cpp", "void f() { std::exit(1); }\n", 1, "main"},
    {"planner/a.cpp", "void f() { std::cerr << 1; }\n", 1, "fmt::print"},
    {"tests/a.cpp", "int x = rand();\n", 1, "seed"},
    {"tools/a.cpp",
     "// TO"
     "DO: later\n",
     1, "without a reason"},
    {"tools/a.cpp", "int x;\t\n", 1, "tab"},
    {"tools/a.cpp", "int x; \n", 1, "space at the end"},
    {"tools/a.cpp", "int x;\r\n", 1, "space at the end"},
    {"tools/a.cpp", "int x;", 0, "newline"},
    {"tools/a.hpp", "int x;\n", 0, "#pragma once"},
};

TEST(Tidy, FindsEveryFaultOfTheCanaries) {
    for (const Canary& canary : kCanaries) {
        SCOPED_TRACE(canary.text);
        const std::vector<Finding> findings = check_source(canary.path, canary.text);
        const bool found =
            std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
                return finding.line == canary.line &&
                       finding.message.find(canary.message) != std::string::npos;
            });
        EXPECT_TRUE(found) << "not found: " << canary.message;
    }
}

TEST(Tidy, FindsLongLinesFunctionsAndFiles) {
    const std::string long_line = "int x = " + std::string(100, '1') + ";\n";
    EXPECT_EQ(check_source("tools/a.cpp", long_line).size(), 1u);
    std::string body;
    for (int line = 0; line < 69; ++line) body += "    work();\n";
    EXPECT_TRUE(check_source("tools/a.cpp", "void f() {\n" + body.substr(12) + "}\n").empty());
    EXPECT_EQ(check_source("tools/a.cpp", "void f() {\n" + body + "}\n").size(), 1u);
    EXPECT_EQ(check_source("tools/a.cpp", "void f(int a,\n       int b) {\n" + body + "}\n").size(),
              1u);
    // A switch with a line a case is a table, and so is what stands between marks for clang-format.
    std::string cases;
    for (int line = 0; line < 69; ++line) cases += "        case 1: return 2;\n";
    EXPECT_TRUE(check_source("tools/a.cpp", "int f() {\n" + cases + "}\n").empty());
    EXPECT_TRUE(
        check_source("tools/a.cpp", "// clang-format off\n" + long_line + "// clang-format on\n")
            .empty());
    EXPECT_TRUE(
        check_source("tools/a.cpp", "auto x = R\"(\n" + std::string(101, 'x') + ")\";\n").empty());
    std::string file;
    for (int line = 0; line < 801; ++line) file += "int x;\n";
    EXPECT_EQ(check_source("tools/a.cpp", file).size(), 1u);
}

TEST(Tidy, LeavesAloneWhatIsAllowedWhereItStands) {
    EXPECT_TRUE(check_source("tools/a.cpp", "auto x = std::getenv(\"HOME\");\n").empty());
    EXPECT_TRUE(check_source("kernels/cuda/device.cu", "int x = cudaMalloc(&p, 1);\n").empty());
    EXPECT_TRUE(check_source("kernels/cuda/a.cu", "#include <cuda_runtime.h>\n").empty());
    EXPECT_TRUE(check_source("runtime/a.cpp", "#include \"offload/disk_probe.hpp\"\n").empty());
    EXPECT_TRUE(
        check_source("planner/a.cpp", "// getenv(), assert() and exit() in words\n").empty());
    EXPECT_TRUE(check_source("planner/a.cpp", "static_assert(true);\n").empty());
    EXPECT_TRUE(check_source("planner/a.cpp", "auto x = R\"(\nexit(1)\n)\" \"rand()\";\n").empty());
}

TEST(Tidy, TakesWordsInCommentsAndStringsForNoCode) {
    EXPECT_EQ(code_of("a // b\nc"), "a     \nc");
    EXPECT_EQ(code_of("a /* b\n c */ d"), "a     \n      d");
    EXPECT_EQ(code_of("f(\"x\\\"y\", 'z')"), "f(      ,    )");
    EXPECT_EQ(code_of("1'000'000 + x"), "1'000'000 + x");
    EXPECT_EQ(code_of("R\"q(\")q\" y"), "R        y");
}

}  // namespace
}  // namespace plimsoll::test
