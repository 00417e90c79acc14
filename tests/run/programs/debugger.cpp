// A debugger of the program in its arguments, through ROCm's debugger library, as AMD's GDB uses it. It prints what it
// finds, one fact a line.
#include <amd-dbgapi/amd-dbgapi.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

pid_t child;
int memory;

void check(amd_dbgapi_status_t status, const char *what) {
  if (status == AMD_DBGAPI_STATUS_SUCCESS)
    return;
  const char *text = "?";
  amd_dbgapi_get_status_string(status, &text);
  std::printf("%s failed: %s\n", what, text);
  std::exit(1);
}
#define DO(call) check(call, #call)

amd_dbgapi_status_t client_info(amd_dbgapi_client_process_id_t, amd_dbgapi_client_process_info_t query, size_t size,
                                void *value) {
  if (query != AMD_DBGAPI_CLIENT_PROCESS_INFO_OS_PID || size != sizeof child)
    return AMD_DBGAPI_STATUS_ERROR_NOT_AVAILABLE;
  std::memcpy(value, &child, sizeof child);
  return AMD_DBGAPI_STATUS_SUCCESS;
}

// Code of the host is not stopped: nothing is loaded while this debugger is attached.
amd_dbgapi_status_t insert(amd_dbgapi_client_process_id_t, amd_dbgapi_global_address_t, amd_dbgapi_breakpoint_id_t) {
  return AMD_DBGAPI_STATUS_SUCCESS;
}
amd_dbgapi_status_t remove(amd_dbgapi_client_process_id_t, amd_dbgapi_breakpoint_id_t) {
  return AMD_DBGAPI_STATUS_SUCCESS;
}

amd_dbgapi_status_t transfer(amd_dbgapi_client_process_id_t, amd_dbgapi_global_address_t address,
                             amd_dbgapi_size_t *size, void *read, const void *write) {
  const ssize_t done = read ? pread(memory, read, *size, address) : pwrite(memory, write, *size, address);
  if (done < 0)
    return AMD_DBGAPI_STATUS_ERROR_MEMORY_ACCESS;
  *size = done;
  return AMD_DBGAPI_STATUS_SUCCESS;
}

void log(amd_dbgapi_log_level_t, const char *message) { std::fprintf(stderr, "dbgapi: %s\n", message); }

amd_dbgapi_process_id_t process;

template <typename Value, typename Function, typename Id, typename Query>
Value ask(Function function, Id id, Query query) {
  Value value{};
  check(function(id, query, sizeof value, &value), "a query");
  return value;
}

template <typename Id, typename Function> std::vector<Id> list(Function function) {
  size_t count = 0;
  Id *all = nullptr;
  check(function(process, &count, &all, nullptr), "a list");
  std::vector<Id> result(all, all + count);
  std::free(all);
  return result;
}

template <typename Value> Value wave_info(amd_dbgapi_wave_id_t wave, amd_dbgapi_wave_info_t query) {
  return ask<Value>(amd_dbgapi_wave_get_info, wave, query);
}

std::map<std::string, amd_dbgapi_register_id_t> registers_of(amd_dbgapi_architecture_id_t architecture) {
  size_t count = 0;
  amd_dbgapi_register_id_t *all = nullptr;
  DO(amd_dbgapi_architecture_register_list(architecture, &count, &all));
  std::map<std::string, amd_dbgapi_register_id_t> named;
  for (size_t index = 0; index < count; ++index) {
    char *name = ask<char *>(amd_dbgapi_register_get_info, all[index], AMD_DBGAPI_REGISTER_INFO_NAME);
    named.emplace(name, all[index]); // shadows of registers have the same names, and come later
    std::free(name);
  }
  std::free(all);
  return named;
}

std::map<std::string, amd_dbgapi_register_id_t> registers;

template <typename Value> Value read(amd_dbgapi_wave_id_t wave, const char *name, size_t offset = 0) {
  Value value{};
  check(amd_dbgapi_read_register(wave, registers.at(name), offset, sizeof value, &value), name);
  return value;
}
template <typename Value> void write(amd_dbgapi_wave_id_t wave, const char *name, Value value, size_t offset = 0) {
  check(amd_dbgapi_write_register(wave, registers.at(name), offset, sizeof value, &value), name);
}

uint64_t pc_of(amd_dbgapi_wave_id_t wave) { return wave_info<uint64_t>(wave, AMD_DBGAPI_WAVE_INFO_PC); }

// Return how many events of a kind come in time, and mark them as processed.
size_t await(amd_dbgapi_event_kind_t wanted, size_t count) {
  pollfd notifier{ask<int>(amd_dbgapi_process_get_info, process, AMD_DBGAPI_PROCESS_INFO_NOTIFIER), POLLIN, 0};
  size_t seen = 0;
  for (int turn = 0; turn < 600 && seen < count; ++turn) {
    amd_dbgapi_event_id_t event;
    amd_dbgapi_event_kind_t kind;
    DO(amd_dbgapi_process_next_pending_event(process, &event, &kind));
    if (kind == AMD_DBGAPI_EVENT_KIND_NONE) {
      poll(&notifier, 1, 100);
      char marks[64];
      fcntl(notifier.fd, F_SETFL, O_NONBLOCK);
      [[maybe_unused]] const ssize_t drained = ::read(notifier.fd, marks, sizeof marks);
      continue;
    }
    seen += kind == wanted;
    DO(amd_dbgapi_event_processed(event));
  }
  return seen;
}

void step(amd_dbgapi_wave_id_t wave) {
  DO(amd_dbgapi_wave_resume(wave, AMD_DBGAPI_RESUME_MODE_SINGLE_STEP, AMD_DBGAPI_EXCEPTION_NONE));
  if (await(AMD_DBGAPI_EVENT_KIND_WAVE_STOP, 1) != 1)
    std::puts("no stop after a step");
  const unsigned reason = wave_info<uint32_t>(wave, AMD_DBGAPI_WAVE_INFO_STOP_REASON);
  if (reason != AMD_DBGAPI_WAVE_STOP_REASON_SINGLE_STEP)
    std::printf("stopped for reason %u after a step\n", reason);
}

void go_on(amd_dbgapi_wave_id_t wave) {
  DO(amd_dbgapi_wave_resume(wave, AMD_DBGAPI_RESUME_MODE_NORMAL, AMD_DBGAPI_EXCEPTION_NONE));
}

uint32_t word_at(uint64_t address) {
  uint32_t word = 0;
  if (pread(memory, &word, sizeof word, address) != sizeof word)
    std::puts("code cannot be read");
  return word;
}

void put_word(uint64_t address, uint32_t word) {
  if (pwrite(memory, &word, sizeof word, address) != sizeof word)
    std::puts("code cannot be written");
}

void show_process() {
  for (const auto agent : list<amd_dbgapi_agent_id_t>(amd_dbgapi_process_agent_list)) {
    const auto architecture =
        ask<amd_dbgapi_architecture_id_t>(amd_dbgapi_agent_get_info, agent, AMD_DBGAPI_AGENT_INFO_ARCHITECTURE);
    char *name = ask<char *>(amd_dbgapi_architecture_get_info, architecture, AMD_DBGAPI_ARCHITECTURE_INFO_NAME);
    std::printf("agent %s, %d units\n", name,
                (int)ask<size_t>(amd_dbgapi_agent_get_info, agent, AMD_DBGAPI_AGENT_INFO_EXECUTION_UNIT_COUNT));
    std::free(name);
    registers = registers_of(architecture);
  }
  size_t objects = 0;
  for (const auto object : list<amd_dbgapi_code_object_id_t>(amd_dbgapi_process_code_object_list)) {
    char *uri = ask<char *>(amd_dbgapi_code_object_get_info, object, AMD_DBGAPI_CODE_OBJECT_INFO_URI_NAME);
    objects += std::strstr(uri, "attached") != nullptr;
    std::free(uri);
  }
  std::printf("code objects of the program: %zu\n", objects);
  size_t compute = 0;
  for (const auto queue : list<amd_dbgapi_queue_id_t>(amd_dbgapi_process_queue_list))
    compute +=
        ask<uint32_t>(amd_dbgapi_queue_get_info, queue, AMD_DBGAPI_QUEUE_INFO_TYPE) == AMD_DBGAPI_OS_QUEUE_TYPE_HSA_AQL;
  std::printf("has compute queues: %d\n", compute > 0);
}

constexpr uint32_t kAdd = 0x80298129; // s_add_u32 s41, s41, 1
constexpr uint64_t kLoop = 4 * sizeof(uint32_t);

bool is_in_loop(amd_dbgapi_wave_id_t wave) {
  for (uint64_t back = 0; back < kLoop; back += sizeof(uint32_t))
    if (word_at(pc_of(wave) - back) == kAdd)
      return true;
  return false;
}

// Stop waves when all of them are in the loop; return how many have stopped.
size_t stop_in_loop(const std::vector<amd_dbgapi_wave_id_t> &waves) {
  for (int turn = 0; turn < 600; ++turn) {
    for (const auto wave : waves)
      DO(amd_dbgapi_wave_stop(wave));
    const size_t stopped = await(AMD_DBGAPI_EVENT_KIND_WAVE_STOP, waves.size());
    if (stopped < waves.size() || std::all_of(waves.begin(), waves.end(), is_in_loop))
      return stopped;
    for (const auto wave : waves)
      go_on(wave);
    usleep(5'000);
  }
  return 0;
}

// Stop all waves, and print what each has.
std::vector<amd_dbgapi_wave_id_t> stop_all() {
  std::vector<amd_dbgapi_wave_id_t> waves;
  for (int turn = 0; turn < 600 && waves.size() < 4; ++turn) {
    waves = list<amd_dbgapi_wave_id_t>(amd_dbgapi_process_wave_list);
    usleep(20'000);
  }
  std::sort(waves.begin(), waves.end(), [](auto left, auto right) { return left.handle < right.handle; });
  std::printf("stopped: %zu of %zu waves\n", stop_in_loop(waves), waves.size());
  for (const auto wave : waves) {
    struct {
      uint32_t id[3];
    } group = wave_info<decltype(group)>(wave, AMD_DBGAPI_WAVE_INFO_WORKGROUP_COORD);
    const auto number = wave_info<uint32_t>(wave, AMD_DBGAPI_WAVE_INFO_WAVE_NUMBER_IN_WORKGROUP);
    std::printf("group %u wave %u: exec %llx s40 %x s42 %x v40 %u %u a3 %u\n", group.id[0], number,
                (unsigned long long)wave_info<uint64_t>(wave, AMD_DBGAPI_WAVE_INFO_EXEC_MASK),
                read<uint32_t>(wave, "s40"), read<uint32_t>(wave, "s42"), read<uint32_t>(wave, "v40"),
                read<uint32_t>(wave, "v40", 63 * 4), read<uint32_t>(wave, "a3", 4));
  }
  return waves;
}

void show_dispatch(amd_dbgapi_wave_id_t wave) {
  const auto dispatch = wave_info<amd_dbgapi_dispatch_id_t>(wave, AMD_DBGAPI_WAVE_INFO_DISPATCH);
  struct {
    uint32_t size[3];
  } grid = ask<decltype(grid)>(amd_dbgapi_dispatch_get_info, dispatch, AMD_DBGAPI_DISPATCH_INFO_GRID_SIZES);
  const auto entry =
      ask<uint64_t>(amd_dbgapi_dispatch_get_info, dispatch, AMD_DBGAPI_DISPATCH_INFO_KERNEL_CODE_ENTRY_ADDRESS);
  std::printf("dispatch of %u items, in the loop: %d\n", grid.size[0],
              pc_of(wave) > entry && pc_of(wave) < entry + 4096);
}

void begin() {
  memory = open(("/proc/" + std::to_string(child) + "/mem").c_str(), O_RDWR);
  static amd_dbgapi_callbacks_t callbacks = {std::malloc, std::free, client_info, insert, remove, transfer, log};
  DO(amd_dbgapi_initialize(&callbacks));
  amd_dbgapi_set_log_level(std::getenv("VERBOSE") ? AMD_DBGAPI_LOG_LEVEL_VERBOSE : AMD_DBGAPI_LOG_LEVEL_WARNING);
}

amd_dbgapi_status_t attach() {
  return amd_dbgapi_process_attach(reinterpret_cast<amd_dbgapi_client_process_id_t>(&child), &process);
}

// Attach from another process.
void show_second_client(const char *self) {
  const std::string number = std::to_string(child);
  std::fflush(stdout);
  const pid_t second = fork();
  if (second == 0) {
    execl(self, self, "--second", number.c_str(), nullptr);
    _exit(127);
  }
  waitpid(second, nullptr, 0);
}

} // namespace

int main(int, char **arguments) {
  if (std::strcmp(arguments[1], "--second") == 0) {
    child = std::atoi(arguments[2]);
    begin();
    const char *text = "?";
    amd_dbgapi_get_status_string(attach(), &text);
    std::printf("a second client: %s\n", text);
    return 0;
  }
  int output[2];
  if (pipe(output) != 0)
    return 1;
  child = fork();
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    execv(arguments[1], arguments + 1);
    _exit(127);
  }
  close(output[1]);
  FILE *from = fdopen(output[0], "r");
  char line[256] = "";
  if (!std::fgets(line, sizeof line, from))
    return 1;
  begin();
  check(attach(), "to attach");
  show_second_client(arguments[0]);
  std::printf("runtime events: %zu\n", await(AMD_DBGAPI_EVENT_KIND_RUNTIME, 1));
  show_process();
  const std::vector<amd_dbgapi_wave_id_t> waves = stop_all();
  if (waves.size() != 4)
    return 1;
  show_dispatch(waves[0]);

  // Once around the loop, step by step.
  const auto first = waves[0];
  for (int turn = 0; turn < 4 && word_at(pc_of(first)) != kAdd; ++turn)
    step(first);
  const uint64_t head = pc_of(first);
  const uint32_t count = read<uint32_t>(first, "s41");
  uint64_t places[4];
  for (uint64_t &place : places) {
    step(first);
    place = pc_of(first) - head;
  }
  std::printf("steps: %llu %llu %llu %llu, counted %u\n", (unsigned long long)places[0], (unsigned long long)places[1],
              (unsigned long long)places[2], (unsigned long long)places[3], read<uint32_t>(first, "s41") - count);

  // A breakpoint at the head of the loop, which all waves reach.
  uint32_t *trap = ask<uint32_t *>(amd_dbgapi_architecture_get_info,
                                   wave_info<amd_dbgapi_architecture_id_t>(first, AMD_DBGAPI_WAVE_INFO_ARCHITECTURE),
                                   AMD_DBGAPI_ARCHITECTURE_INFO_BREAKPOINT_INSTRUCTION);
  step(first); // away from it
  const uint32_t saved = word_at(head);
  put_word(head, *trap);
  for (const auto wave : waves)
    go_on(wave);
  std::printf("at the breakpoint: %zu waves", await(AMD_DBGAPI_EVENT_KIND_WAVE_STOP, waves.size()));
  for (const auto wave : waves) {
    const auto reason = wave_info<uint32_t>(wave, AMD_DBGAPI_WAVE_INFO_STOP_REASON);
    std::printf(", reason %u behind it %lld", reason, (long long)(pc_of(wave) - head));
    write<uint64_t>(wave, "pc", head);
  }
  std::puts("");

  // Over it while it stays, by a copy of the instruction.
  amd_dbgapi_displaced_stepping_id_t displaced;
  const uint32_t before = read<uint32_t>(first, "s41");
  DO(amd_dbgapi_displaced_stepping_start(first, &saved, &displaced));
  step(first);
  DO(amd_dbgapi_displaced_stepping_complete(first, displaced));
  std::printf("over the breakpoint: %llu, counted %u\n", (unsigned long long)(pc_of(first) - head),
              read<uint32_t>(first, "s41") - before);

  // Change registers, and let all waves end.
  put_word(head, saved);
  for (const auto wave : waves) {
    write<uint32_t>(wave, "s42", 7);
    const auto number = wave_info<uint32_t>(wave, AMD_DBGAPI_WAVE_INFO_WAVE_NUMBER_IN_WORKGROUP);
    struct {
      uint32_t id[3];
    } group = wave_info<decltype(group)>(wave, AMD_DBGAPI_WAVE_INFO_WORKGROUP_COORD);
    if (number == 0 && group.id[0] == 0)
      write<uint32_t>(wave, "v40", 110, 5 * 4); // of item 5
    go_on(wave);
  }
  DO(amd_dbgapi_process_detach(process));
  DO(amd_dbgapi_finalize());
  while (std::fgets(line, sizeof line, from))
    std::printf("the program: %s", line);
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("its exit code: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return 0;
}
