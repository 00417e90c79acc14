#include "checked_launches.h"

#include <sys/mman.h>
#include <unistd.h>

#include "failure.h"

namespace luthier {

using namespace layout;

namespace {

void count(uint64_t &counter, uint64_t by = 1) { __atomic_fetch_add(&counter, by, __ATOMIC_RELAXED); }

// Return a number that looks random and is the same in each run (the finaliser of SplitMix64, public domain).
uint64_t scrambled(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
  number = (number ^ number >> 27) * 0x94d049bb133111eb;
  return number ^ number >> 31;
}

} // namespace

CheckedLaunches::CheckedLaunches(Service &service) {
  if (!service.setup().findings)
    return;
  wanted_ = service.ask(wire::ChooseLaunches{});
  void *memory = mmap(nullptr, sizeof *tally_, PROT_READ | PROT_WRITE, MAP_SHARED, wanted_.tally.fd, 0);
  close(wanted_.tally.fd);
  if (memory == MAP_FAILED)
    throw Failure("cannot map the service's memory");
  tally_ = static_cast<wire::CheckTally *>(memory);
  check_mapping(tally_->digest, "the virtual device (libluthier_kfd.so)", "the memory with counts of launches");
}

CheckedLaunches::Choice CheckedLaunches::choose(const char *plan, const hsa::DispatchPacket &packet) {
  Choice choice{plan, 0};
  if (!tally_)
    return choice;
  Kernel *kernel;
  {
    std::lock_guard lock(mutex_);
    kernel = &kernels_[plan];
    choice.number = kernel->launches++;
  }
  choice.of_program = get(plan, plan::of_program);
  if (const auto *plain = pointer<const char *>(plan, plan::plain)) {
    choice.is_observed =
        kernel->choice.takes(wanted_.chosen, packet, choice.number) && is_in_budget(*kernel, packet, choice.number);
    if (!choice.is_observed)
      choice.plan = plain;
  }
  return choice;
}

// The first launch of each size is in the budget, then, while there is time left, one in n, more and more rarely.
bool CheckedLaunches::is_in_budget(Kernel &kernel, const hsa::DispatchPacket &packet, uint64_t number) {
  constexpr uint64_t kOften = 16; // that many launches until every second one is taken
  if (!wanted_.budget || kernel.sizes.is_new(packet))
    return true;
  if (scrambled(number) % (1 + number / kOften) != 0)
    return false;
  if (__atomic_load_n(&tally_->observed_nanoseconds, __ATOMIC_RELAXED) < wanted_.budget * 1000000)
    return true;
  count(tally_->left);
  return false;
}

void CheckedLaunches::ended(const Choice &choice, std::chrono::nanoseconds duration) const {
  if (!choice.of_program)
    return;
  count(tally_->launches);
  count(tally_->nanoseconds, duration.count());
  if (choice.is_observed) {
    count(tally_->observed);
    count(tally_->observed_nanoseconds, duration.count());
  }
}

void CheckedLaunches::allocated(uint64_t size) const {
  if (!tally_)
    return;
  count(tally_->allocations);
  count(tally_->bytes, size);
}

} // namespace luthier
