#include "client.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

namespace luthier {

namespace {

// Return the command line of this process, its parts separated by blanks.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  while (!text.empty() && !text.back())
    text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

const char *socket_path() {
  const char *path = std::getenv(wire::kToolsSocketVariable);
  if (!path)
    throw Failure("it works only under `luthier run`");
  return path;
}

} // namespace

Client::Client() : channel_(socket_path()), owner_(getpid()) {
  wishes_ = ask(wire::Instrument{kDigest, command_line()});
  const uint64_t size = Ledger::size(wishes_.rows, wishes_.records);
  void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, wishes_.ledger.fd, 0);
  close(wishes_.ledger.fd);
  if (memory == MAP_FAILED)
    throw Failure("cannot map the service's memory");
  try {
    check_mapping(static_cast<const wire::LedgerHead *>(memory)->digest, kToolLibrary, "the ledger of launches");
  } catch (const Failure &problem) {
    ask(wire::Fault{problem.what()}); // the summary of the run reports that nothing was counted here
    throw;
  }
  ledger_ = Ledger(memory, wishes_.rows, wishes_.records);
}

bool Client::is_own() const { return getpid() == owner_; }

} // namespace luthier
