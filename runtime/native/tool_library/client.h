// Requests of the library to the service of `luthier run`.
#pragma once

#include "failure.h"
#include "ledger.h"
#include "wire.h"

namespace luthier {

inline constexpr char kToolLibrary[] = "the tool library (libluthier_tools.so)";

class Client {
public:
  // Connect as the environment says. All functions throw `Failure`.
  Client();

  const wire::Wishes &wishes() const { return wishes_; }
  Ledger &ledger() { return ledger_; }
  // Return whether this process made the connection, instead of inheriting it.
  bool is_own() const;
  // Return when the service has ended.
  void wait_for_end() const noexcept { channel_.wait_for_end(); }

  // Return the reply to a request.
  template <typename Request> typename Request::Reply ask(const Request &request) {
    if (!is_own())
      throw Failure("a forked process uses the GPU of its parent");
    return channel_.ask(request);
  }

private:
  Channel channel_;
  int owner_;
  wire::Wishes wishes_;
  Ledger ledger_;
};

} // namespace luthier
