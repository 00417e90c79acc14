// What the program has enqueued and not synchronised with, by HIP's documented order of streams and events, however
// early the device has ended it: check `in-flight`. Nothing is done unless the check is wanted, or within HIP.
#pragma once

#include <cstddef>
#include <cstdint>

namespace luthier::in_flight {

// An asynchronous copy is about to be enqueued. Return its number; 0: it is not followed.
uint64_t begin_copy(const char *function, const void *to, const void *from, size_t size, void *stream);
// HIP has enqueued it, or has refused it.
void end_copy(uint64_t copy, void *stream, bool is_enqueued);

// The program has waited for the work of a stream, and for what that waits for; of all streams.
void synchronised(void *stream);
void all_synchronised();

void recorded(void *event, void *stream);
// An event is destroyed, or recorded in a way that is not followed: whoever waits for it waits for everything.
void forget_event(void *event);
void stream_waits(void *stream, void *event);
void event_passed(void *event);

void destroyed_stream(void *stream);

// HIP will call a function of the program after the work of a stream so far. Return the number of that moment, for
// `reached`, which that call begins with.
uint64_t moment(void *stream);
void reached(uint64_t moment);

void registered(void *address, size_t size);
void unregistered(void *address);

// Memory is about to be freed in the order of a stream.
void freed_in(void *stream, const void *address);

} // namespace luthier::in_flight

extern "C" {
// A function uses memory for the program. Returns quickly if nothing is protected.
void luthier_used_by_call(const char *function, const void *address, size_t size, bool writes);
}
