// Data flow for processors with 1,024 VGPRs.
#define LUTHIER_VGPRS 1024
#define LUTHIER_FLOW flow1024
#include "sources.h"
