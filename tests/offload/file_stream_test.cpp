#include "offload/file_stream.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "offload/read_blocks.hpp"

namespace plimsoll::offload {
namespace {

/// A file of noise in the build folder, which lies on a drive, or in memory.
class NoiseFile {
public:
    NoiseFile(const std::string& folder, std::size_t size_bytes) {
        path_ = folder + "/plimsoll-stream-XXXXXX";
        const int descriptor = mkstemp(path_.data());
        std::mt19937_64 random(1);
        bytes_.resize(size_bytes);
        for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
        is_written_ =
            descriptor >= 0 &&
            write(descriptor, bytes_.data(), size_bytes) == static_cast<ssize_t>(size_bytes) &&
            fsync(descriptor) == 0;
        // So that it is read from the drive.
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        close(descriptor);
    }
    NoiseFile(const NoiseFile&) = delete;
    NoiseFile& operator=(const NoiseFile&) = delete;
    ~NoiseFile() { unlink(path_.c_str()); }

    [[nodiscard]] bool is_written() const { return is_written_; }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    std::string path_;
    std::vector<std::byte> bytes_;
    bool is_written_ = false;
};

struct FreeBytes {
    void operator()(std::byte* bytes) const { std::free(bytes); }
};

/// Slots for a stream.
struct Slots {
    explicit Slots(std::uint32_t n_slots, std::uint64_t slot_bytes)
        : bytes(static_cast<std::byte*>(std::aligned_alloc(kSectorBytes, n_slots * slot_bytes))) {
        setting.memory = {bytes.get(), n_slots * slot_bytes};
        setting.n_slots = n_slots;
        setting.slot_bytes = slot_bytes;
        setting.n_threads = 3;
        setting.block_bytes = 2 * kSectorBytes;
    }
    std::unique_ptr<std::byte, FreeBytes> bytes;
    FileStreamSetting setting;
};

constexpr std::uint64_t kSlotBytes = 16 * kSectorBytes;

/// Ranges of every alignment and length, one behind the other, with gaps.
std::vector<FileRange> ranges_over(const NoiseFile& file, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<FileRange> ranges;
    for (std::uint64_t at = random() % 5000; at < file.bytes().size();) {
        const std::uint64_t longest =
            std::min(file_range_bytes_max(kSlotBytes), file.bytes().size() - at);
        const std::uint64_t size_bytes = random() % 4 == 0 ? longest : 1 + random() % longest;
        ranges.push_back({0, at, size_bytes});
        at += size_bytes + (random() % 3 == 0 ? random() % 9000 : 0);
    }
    return ranges;
}

/// Reads all ranges with `n_kept` unreleased at a time and compares them with the file.
void expect_stream(const NoiseFile& file, const std::vector<FileRange>& ranges,
                   const FileStreamSetting& setting, std::size_t n_kept, const std::string& what) {
    IoResult<FileStream> stream = FileStream::open({file.path()}, ranges, setting);
    ASSERT_TRUE(stream) << describe(stream.error());
    SCOPED_TRACE(what + ", " + stream->how() + " " + stream->fallback());
    std::size_t n_released = 0;
    for (std::size_t at = 0; at < ranges.size(); ++at) {
        const auto bytes = stream->next();
        ASSERT_TRUE(bytes) << describe(bytes.error());
        ASSERT_EQ(bytes->size(), ranges[at].size_bytes);
        const std::byte* slot = setting.memory.data() + at % setting.n_slots * setting.slot_bytes;
        ASSERT_EQ(bytes->data() - slot,
                  static_cast<std::ptrdiff_t>(ranges[at].offset_bytes % kSectorBytes));
        ASSERT_EQ(std::memcmp(bytes->data(), file.bytes().data() + ranges[at].offset_bytes,
                              bytes->size()),
                  0)
            << "range " << at;
        if (at + 1 >= n_kept + n_released) {
            stream->release();
            ++n_released;
        }
    }
}

TEST(FileStream, ReadsAnyRangesInOrderBothWaysAndFromAnyPlace) {
    for (const char* folder : {".", "/dev/shm"}) {
        const NoiseFile file(folder, 1'234'567);
        if (!file.is_written()) continue;
        for (const std::uint64_t seed : {1, 2, 3})
            for (const std::uint32_t n_slots : {1u, 2u, 5u})
                for (const auto& [direct, ring] :
                     {std::pair{true, true}, {true, false}, {false, true}}) {
                    Slots slots(n_slots, kSlotBytes);
                    slots.setting.direct = direct;
                    slots.setting.ring = ring;
                    expect_stream(file, ranges_over(file, seed), slots.setting, 1 + seed % n_slots,
                                  std::string(folder) + " seed " + std::to_string(seed) +
                                      " slots " + std::to_string(n_slots) +
                                      (direct ? " direct" : "") + (ring ? " ring" : ""));
                }
    }
}

TEST(FileStream, SaysHowItReads) {
    const NoiseFile file("/dev/shm", 100'000);
    if (!file.is_written()) GTEST_SKIP() << "no /dev/shm";
    Slots slots(2, kSlotBytes);
    const IoResult<FileStream> stream =
        FileStream::open({file.path()}, ranges_over(file, 1), slots.setting);
    ASSERT_TRUE(stream);
    EXPECT_EQ(stream->how(), "3 threads, from memory");
    EXPECT_EQ(stream->fallback(), "");
}

TEST(FileStream, NamesTheFirstByteThatAFileLacks) {
    for (const char* folder : {".", "/dev/shm"})
        for (const bool ring : {true, false}) {
            const NoiseFile file(folder, 50'000);
            if (!file.is_written()) continue;
            Slots slots(2, kSlotBytes);
            slots.setting.ring = ring;
            IoResult<FileStream> stream = FileStream::open(
                {file.path()}, {{0, 100, 40'000}, {0, 40'100, 20'000}}, slots.setting);
            ASSERT_TRUE(stream) << describe(stream.error());
            ASSERT_TRUE(stream->next());
            const auto bytes = stream->next();
            ASSERT_FALSE(bytes);
            EXPECT_EQ(bytes.error().offset_bytes, 50'000u) << stream->how();
            EXPECT_EQ(bytes.error().error_number, 0);
            EXPECT_EQ(bytes.error().path, file.path());
        }
}

TEST(FileStream, MayEndWithReadsInFlight) {
    const NoiseFile file(".", 1'000'000);
    ASSERT_TRUE(file.is_written());
    for (int n_read = 0; n_read < 4; ++n_read) {
        Slots slots(4, kSlotBytes);
        IoResult<FileStream> stream =
            FileStream::open({file.path()}, ranges_over(file, 4), slots.setting);
        ASSERT_TRUE(stream);
        for (int at = 0; at < n_read; ++at) ASSERT_TRUE(stream->next());
    }
}

TEST(FileStream, RefusesWhatIsNotThereAndWhatDoesNotFit) {
    Slots slots(2, kSlotBytes);
    const auto missing = FileStream::open({"/no/such/file"}, {{0, 0, 1}}, slots.setting);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().error_number, ENOENT);
    for (const FileRange& range : {FileRange{0, 0, 0}, FileRange{1, 0, 1},
                                   FileRange{0, 0, file_range_bytes_max(kSlotBytes) + 1}}) {
        const auto stream = FileStream::open({"/dev/zero"}, {range}, slots.setting);
        ASSERT_FALSE(stream);
        EXPECT_EQ(stream.error().error_number, EINVAL);
    }
}

// What a kernel may return, which files on a healthy drive do not show.
TEST(ReadBlock, GoesOnWhereAShortReadEndedAndAgainAfterAnInterruption) {
    ReadBlock block{.size_bytes = 3 * kSectorBytes, .needed_bytes = 9000, .is_direct = true};
    EXPECT_EQ(after_read(block, -EINTR), ReadOutcome::again);
    EXPECT_EQ(after_read(block, -EAGAIN), ReadOutcome::again);
    EXPECT_EQ(block.resume_bytes(), 0u);
    EXPECT_EQ(after_read(block, 5000), ReadOutcome::again);
    EXPECT_EQ(block.resume_bytes(), kSectorBytes);  // a direct read starts at a whole sector
    EXPECT_EQ(after_read(block, 4904), ReadOutcome::done);

    ReadBlock plain{.size_bytes = 9000, .needed_bytes = 9000};
    EXPECT_EQ(after_read(plain, 5000), ReadOutcome::again);
    EXPECT_EQ(plain.resume_bytes(), 5000u);
    EXPECT_EQ(after_read(plain, 0), ReadOutcome::failed);
    EXPECT_EQ(after_read(plain, -EIO), ReadOutcome::failed);
    EXPECT_EQ(plain.done_bytes, 5000u);
}

TEST(ReadBlock, FailsWhereADirectReadComesBackToTheEndOfTheFile) {
    ReadBlock block{.size_bytes = 3 * kSectorBytes, .needed_bytes = 9000, .is_direct = true};
    EXPECT_EQ(after_read(block, 5000), ReadOutcome::again);
    EXPECT_EQ(after_read(block, 5000 - 4096), ReadOutcome::failed);
    EXPECT_EQ(block.done_bytes, 5000u);
}

}  // namespace
}  // namespace plimsoll::offload
