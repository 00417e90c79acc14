// Data flow for processors with 256 VGPRs: the defaults.
#include "sources.h"
